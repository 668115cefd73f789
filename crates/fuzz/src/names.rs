//! Names of states in Redis.

use tollgate_redis::StateName;

/// A name that can be read has a prefix, a policy and an identity, which stand in it in this order. The text of an identity is
/// read back as the bytes that were escaped.
pub fn names(data: &[u8]) {
    let Some(name) = StateName::read(data) else {
        return;
    };
    let text = str::from_utf8(data).unwrap();
    assert!(text.is_ascii() && !text.contains([' ', '*', '?', '[', ']', '\\']));
    assert!(text.starts_with(name.prefix()), "{text}");
    assert!(text.ends_with(name.identity()), "{text}");
    assert_eq!(name.partition().is_some(), text.contains('{'), "{text}");
    let Some(key) = name.key() else {
        assert_eq!(name.identity().len(), 33, "{text}");
        return;
    };
    if let Some(escaped) = name.identity().strip_prefix('=') {
        let content = percent_encoding::percent_decode_str(escaped);
        assert_eq!(content.collect::<Vec<_>>(), key.content(), "{text}");
    }
}
