//! One spelling for the values that typed extractors accept in several.

use std::net::{Ipv6Addr, SocketAddr};
use std::str;

/// The one form of a number, a UUID, an IPv6 address, a ULID or sixteen hexadecimal digits and more, if this is another one:
/// `Path<u64>` takes `7`, `007` and `+7` for one caller, `Path<f64>` also `7.0` and `70e-1`, `Path<Uuid>` the same digits in any
/// case, with hyphens, braces, `urn:uuid:`, or none of these, and `Path<IpAddr>` `::1` and `0:0::1`, and `Path<SocketAddr>`
/// `[::1]:80` and `[0::1]:080`; and types of hexadecimal digits (ObjectIds, hashes, addresses of chains) and ULIDs, as the crates
/// of these names read them, capital letters and small ones. A handler may remove blanks around a value.
pub(crate) fn one_form(text: &[u8]) -> Option<Vec<u8>> {
    let value = text.trim_ascii();
    let form = uuid(value)
        .or_else(|| number(value))
        .or_else(|| decimal(value))
        .or_else(|| address(value))
        .or_else(|| in_small_letters(value))?;
    (form != text).then_some(form)
}

/// A number with a point or an exponent, as the digits of the floating-point number next to it. One that is too large or too small
/// for that stays as it is: so may an identity look that was never meant for a number, such as `12e4567`.
fn decimal(text: &[u8]) -> Option<Vec<u8>> {
    let looks_like_it = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
    if !text.iter().all(looks_like_it) {
        return None;
    }
    let value: f64 = str::from_utf8(text).ok()?.parse().ok()?;
    let mantissa = text.split(|byte| b"eE".contains(byte)).next()?;
    let is_zero = !mantissa.iter().any(|byte| (b'1'..=b'9').contains(byte));
    if value == 0.0 {
        return is_zero.then(|| b"0".to_vec());
    }
    value.is_finite().then(|| value.to_string().into_bytes())
}

fn address(text: &[u8]) -> Option<Vec<u8>> {
    if !text.contains(&b':') {
        return None;
    }
    let text = str::from_utf8(text).ok()?;
    let address = match text.parse::<Ipv6Addr>() {
        Ok(address) => address.to_string(),
        // A port may have any number of zeros before it.
        Err(_) => text.parse::<SocketAddr>().ok()?.to_string(),
    };
    Some(address.into_bytes())
}

fn in_small_letters(text: &[u8]) -> Option<Vec<u8>> {
    let digits = [b"0x", b"0X"]
        .iter()
        .find_map(|prefix| text.strip_prefix(*prefix));
    let digits = digits.unwrap_or(text);
    if digits.len() >= 16 && digits.iter().all(u8::is_ascii_hexdigit) {
        return Some(digits.to_ascii_lowercase());
    }
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() && !b"iloILOuU".contains(byte);
    let is_ulid = text.len() == 26 && text.iter().all(is_digit);
    is_ulid.then(|| one_ulid(text.to_ascii_lowercase()))
}

/// A ULID has 128 bits, and its 26 digits 130: its reader drops the first two.
fn one_ulid(mut digits: Vec<u8>) -> Vec<u8> {
    const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

    if let Some(first) = digits.first_mut()
        && let Some(value) = DIGITS.iter().position(|digit| digit == first)
    {
        *first = DIGITS[value % 8];
    }
    digits
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
            (" +7\t", "7"),
        ] {
            assert_eq!(form(text), expected, "{text}");
        }
        for text in ["", "+", "-", "++7", "+-7", "0x7", "7a", "0 7"] {
            assert_eq!(form(text), text);
        }
    }

    #[test]
    fn a_number_with_a_point_or_an_exponent_is_its_value() {
        for (text, expected) in [
            ("7.0", "7"),
            ("7.", "7"),
            ("+07.00", "7"),
            ("0.7e1", "7"),
            ("70E-1", "7"),
            ("7.00000000000000000000000001", "7"),
            (".5", "0.5"),
            ("-1.50", "-1.5"),
            ("-0.0", "0"),
            ("0e9999", "0"),
            ("1e18", "1000000000000000000"),
            ("1e-7", "0.0000001"),
            ("1.10", "1.1"),
        ] {
            assert_eq!(form(text), expected, "{text}");
        }
        for text in [
            "12e4567", "1e-999", ".", "e5", "1e", "1.2.3", "--1.0", "nan", "inf",
        ] {
            assert_eq!(form(text), text);
        }
    }

    #[test]
    fn an_ipv6_address_is_its_value() {
        for text in ["0:0:0:0:0:0:0:1", "0::1", "::0001", "0000::0.0.0.1"] {
            assert_eq!(form(text), "::1", "{text}");
        }
        assert_eq!(form("2001:DB8::A"), "2001:db8::a");
        assert_eq!(form("::FFFF:c0a8:1"), "::ffff:192.168.0.1");
        assert_eq!(form("[0:0::1]:00080"), "[::1]:80");
        assert_eq!(form("192.168.0.1:080"), "192.168.0.1:80");
        for text in [
            "::1%eth0",
            "[::1]",
            "192.168.0.1",
            "192.168.0.1:65536",
            "a:b",
            ":",
        ] {
            assert_eq!(form(text), text);
        }
    }

    #[test]
    fn hexadecimal_digits_and_a_ulid_are_their_digits_in_small_letters() {
        for text in [
            "507F1F77BCF86CD799439011",
            "0x507f1f77bcf86cd799439011",
            "0X507f1f77BCF86cd799439011",
        ] {
            assert_eq!(form(text), "507f1f77bcf86cd799439011", "{text}");
        }
        // Its reader drops the first two of 130 bits.
        for first in ["0", "8", "G", "g", "R"] {
            let text = format!("{first}1ARZ3NDEKTSV4RRFFQ69G5FAV");
            assert_eq!(form(&text), "01arz3ndektsv4rrffq69g5fav", "{text}");
        }
        for text in [
            "DEADBEEF",
            "0xDEADBEEF",
            "507F1F77BCF86CD79943901G",
            "01ARZ3NDEKTSV4RRFFQ69G5FAI",
            "01ARZ3NDEKTSV4RRFFQ69G5FA",
        ] {
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
            "(67e55044-10b1-426f-9247-bb680e5fe0c8)",
        ] {
            assert_eq!(form(text), text);
        }
        assert_eq!(form("00000000-0000-0000-0000-000000000012"), "12");
    }
}
