//! Identities of several parts.

use tollgate::Key;

/// Ends an identity. All other bytes may be a part of one, so many of them look like separators.
const NEXT: u8 = 0xff;
/// Ends a part.
const PART: u8 = 0xfe;

/// Two lists of parts are one identity only if they are the same list; parts are texts, numbers and lists of parts.
pub fn keys(data: &[u8]) {
    let mut lists = data.split(|byte| *byte == NEXT);
    let (one, other) = (
        lists.next().unwrap_or_default(),
        lists.next().unwrap_or_default(),
    );
    let [one, other] = [one, other]
        .map(|list| -> Vec<Key> { list.split(|byte| *byte == PART).map(part).collect() });
    let (joined, others) = (Key::tuple(&one), Key::tuple(&other));
    assert_eq!(one == other, joined == others, "{one:?} and {other:?}");
    assert_eq!(joined == others, joined.as_bytes() == others.as_bytes());
    assert!(joined.as_bytes().len() <= Key::MAX_LEN);

    // An identity by itself differs from a list of it alone.
    for part in &one {
        assert_ne!(*part, joined);
    }
    // A list within a list differs from the list.
    assert_ne!(Key::tuple([&joined]), joined);
}

/// The first byte gives the kind of the part.
fn part(bytes: &[u8]) -> Key {
    match bytes {
        [b'#', number @ ..] if number.len() <= 8 => {
            let number = number
                .iter()
                .fold(0, |number, byte| number << 8 | u64::from(*byte));
            Key::from(number)
        }
        [b'(', parts @ ..] => {
            let parts: Vec<Key> = parts.split(|byte| *byte == b',').map(Key::bytes).collect();
            Key::tuple(&parts)
        }
        bytes => Key::bytes(bytes),
    }
}
