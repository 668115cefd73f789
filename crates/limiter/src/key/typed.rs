//! One spelling for the values that typed extractors accept in several.

/// The one form of a number or a UUID, if this is another one: `Path<u64>` takes `7`, `007` and `+7` for one caller, and
/// `Path<Uuid>` the same digits in any case, with hyphens, braces, `urn:uuid:`, or none of these.
pub(crate) fn one_form(text: &[u8]) -> Option<Vec<u8>> {
    let form = uuid(text).or_else(|| number(text))?;
    (form != text).then_some(form)
}

fn number(text: &[u8]) -> Option<Vec<u8>> {
    let (minus, digits) = match text.split_first()? {
        (b'+', digits) => (false, digits),
        (b'-', digits) => (true, digits),
        _ => (false, text),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digits = match digits.iter().position(|digit| *digit != b'0') {
        Some(first) => digits.get(first..)?,
        None => return Some(b"0".to_vec()),
    };
    Some(if minus {
        [b"-", digits].concat()
    } else {
        digits.to_vec()
    })
}

/// With hyphens and in lower case, as most write it. Digits that are decimal throughout may be a number as well, and then are that.
fn uuid(text: &[u8]) -> Option<Vec<u8>> {
    let (text, hyphens) = match text.len() {
        32 => (text, false),
        36 => (text, true),
        38 => (text.strip_prefix(b"{")?.strip_suffix(b"}")?, true),
        45 => (text.strip_prefix(b"urn:uuid:")?, true),
        _ => return None,
    };
    let is_hyphen = |index: usize| hyphens && matches!(index, 8 | 13 | 18 | 23);
    let (mut digits, mut form) = (Vec::with_capacity(32), Vec::with_capacity(36));
    for (index, byte) in text.iter().enumerate() {
        match byte {
            b'-' if is_hyphen(index) => {}
            digit if digit.is_ascii_hexdigit() && !is_hyphen(index) => {
                if matches!(digits.len(), 8 | 12 | 16 | 20) {
                    form.push(b'-');
                }
                form.push(digit.to_ascii_lowercase());
                digits.push(*digit);
            }
            _ => return None,
        }
    }
    number(&digits).or(Some(form))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(text: &str) -> String {
        let form = one_form(text.as_bytes());
        String::from_utf8(form.unwrap_or_else(|| text.into())).unwrap()
    }

    #[test]
    fn a_number_is_its_value() {
        for (text, expected) in [
            ("7", "7"),
            ("007", "7"),
            ("+7", "7"),
            ("+007", "7"),
            ("0", "0"),
            ("000", "0"),
            ("-0", "0"),
            ("-07", "-7"),
            ("36893488147419103232", "36893488147419103232"),
            ("00000000000000000000000000000007", "7"),
        ] {
            assert_eq!(form(text), expected, "{text}");
        }
        for text in ["", "+", "-", "++7", "+-7", "7.0", "0x7", "7a", " 7", "07 "] {
            assert_eq!(form(text), text);
        }
    }

    #[test]
    fn a_uuid_is_its_digits() {
        let expected = "67e55044-10b1-426f-9247-bb680e5fe0c8";
        for text in [
            "67e5504410b1426f9247bb680e5fe0c8",
            "67E5504410B1426F9247BB680E5FE0C8",
            "67e55044-10b1-426f-9247-bb680e5fe0c8",
            "67e55044-10B1-426F-9247-bb680e5fe0c8",
            "{67e55044-10b1-426f-9247-bb680e5fe0c8}",
            "urn:uuid:67e55044-10b1-426f-9247-bb680e5fe0c8",
        ] {
            assert_eq!(form(text), expected, "{text}");
        }
        for text in [
            "67e55044-10b1-426f-9247-bb680e5fe0cg",
            "67e550441-0b1-426f-9247-bb680e5fe0c8",
            "{67e55044-10b1-426f-9247-bb680e5fe0c8",
            "67e5504410b1426f9247bb680e5fe0c",
            "(67e55044-10b1-426f-9247-bb680e5fe0c8)",
        ] {
            assert_eq!(form(text), text);
        }
        assert_eq!(form("00000000-0000-0000-0000-000000000012"), "12");
    }
}
