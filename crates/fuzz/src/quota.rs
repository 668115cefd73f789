//! Quotas as people write them.

use tollgate::Quota;

/// A quota that can be read is written in a form that reads back equal. A refusal is short.
pub fn quota(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(quotas) = Quota::parse_all(&text) {
        let written: Vec<_> = quotas.iter().map(ToString::to_string).collect();
        assert_eq!(
            Quota::parse_all(&written.join("; ")),
            Ok(quotas),
            "{text:?}"
        );
    }
    match text.parse::<Quota>() {
        Ok(quota) => {
            let written = quota.to_string();
            assert_eq!(
                written.parse(),
                Ok(quota),
                "{text:?} is written {written:?}"
            );
            assert!(
                quota.limit() > 0 && quota.capacity() > 0,
                "{text:?} admits nothing"
            );
        }
        Err(error) => {
            let said = error.to_string();
            assert!(!said.is_empty() && said.len() < 512, "{said}");
        }
    }
}
