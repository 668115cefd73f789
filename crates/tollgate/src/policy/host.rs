//! Which host a request is for.

/// A host, or every name below one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostPattern {
    name: Box<str>,
    below: bool,
}

impl HostPattern {
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let (name, below) = match text.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (text, false),
        };
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        let is_v6 = name.starts_with('[') && name.ends_with(']') && !below;
        if name.is_empty() || !(is_v6 || name.bytes().all(allowed)) {
            return Err("is no name or address without port");
        }
        Ok(Self {
            name: name.into(),
            below,
        })
    }

    /// Whether the host, in lower case and without port, is one of these.
    pub(super) fn matches(&self, host: &str) -> bool {
        if !self.below {
            return *host == *self.name;
        }
        let label = host.strip_suffix(&*self.name);
        label.is_some_and(|label| label.len() > 1 && label.ends_with('.'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_itself_and_a_star_is_every_name_below() {
        let cases = [
            ("api.example.com", "api.example.com", true),
            ("API.example.com.", "api.example.com", true),
            ("api.example.com", "example.com", false),
            ("*.example.com", "api.example.com", true),
            ("*.example.com", "a.b.example.com", true),
            ("*.example.com", "example.com", false),
            ("*.example.com", ".example.com", false),
            ("*.example.com", "badexample.com", false),
            ("[2001:db8::1]", "[2001:db8::1]", true),
        ];
        for (pattern, host, expected) in cases {
            let pattern = HostPattern::parse(pattern).unwrap();
            assert_eq!(pattern.matches(host), expected, "{pattern:?} {host}");
        }
    }

    #[test]
    fn what_no_host_could_be_is_refused() {
        for text in [
            "",
            "*.",
            "*",
            "a b",
            "example.com:80",
            "http://example.com",
            "a/b",
            "*.[::1]",
        ] {
            assert!(HostPattern::parse(text).is_err(), "{text}");
        }
    }
}
