//! The slot of a name in a cluster.

/// The slots of every cluster.
pub(crate) const SLOTS: u16 = 16_384;

/// The slot of a name: that of its hash tag, if it has one.
pub(crate) fn of(name: &[u8]) -> u16 {
    crc16(tag(name).unwrap_or(name)) % SLOTS
}

/// The text between the first `{` and the next `}`, unless it is empty.
fn tag(name: &[u8]) -> Option<&[u8]> {
    let (_, behind) = name.split_at_checked(name.iter().position(|&byte| byte == b'{')? + 1)?;
    let end = behind.iter().position(|&byte| byte == b'}')?;
    behind.get(..end).filter(|tag| !tag.is_empty())
}

/// The checksum that Redis spreads keys by: CRC-16 of the XMODEM kind. By a table, because each decision in a cluster computes
/// one.
pub(crate) fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, byte| {
        let [high, low] = crc.to_be_bytes();
        u16::from(low) << 8 ^ OF_A_BYTE[usize::from(high ^ byte)]
    })
}

const OF_A_BYTE: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte: u16 = 0;
    while byte < 256 {
        let mut crc = byte << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc << 1) ^ if crc & 0x8000 != 0 { 0x1021 } else { 0 };
            bit += 1;
        }
        table[byte as usize] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use tollgate_testkit::Standalone;

    use super::*;

    #[test]
    fn slots_are_those_of_a_real_server() {
        let server = Standalone::start_with(&["--cluster-enabled", "yes"]);
        let names = [
            "",
            "a",
            "123456789",
            "tollgate:{63}:login",
            "{}a",
            "{a",
            "a}{b}c",
            "{{a}}",
            "{a}{b}",
        ];
        for name in names {
            let answer = server.command(&["CLUSTER", "KEYSLOT", name]);
            assert_eq!(answer, format!(":{}\r\n", of(name.as_bytes())), "{name}");
        }
    }
}
