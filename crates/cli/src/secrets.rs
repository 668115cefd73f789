//! Secrets among the arguments, which no message repeats.

use std::ffi::OsString;

/// The text that stands for a secret.
const HIDDEN: &str = "***";

/// The parts of these arguments that may be passwords.
pub(crate) fn of(arguments: &[OsString]) -> Vec<String> {
    let texts = arguments.iter().map(|argument| argument.to_string_lossy());
    let mut secrets: Vec<_> = texts.filter_map(|text| secret_in(&text)).collect();
    secrets.extend(std::env::var("TOLLGATE_REDIS_PASSWORD"));
    secrets.retain(|secret| !secret.is_empty());
    // A secret may lie within another.
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    secrets
}

/// The password of a URL: all between the user and the last `@`. Without an `@` a single word may be one, as the library has it.
fn secret_in(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://")?;
    let is_of_redis = ["redis", "valkey"].iter().any(|name| scheme.contains(name));
    if let Some((before, _)) = rest.rsplit_once('@') {
        let (_, password) = before.split_once(':').unwrap_or(("", before));
        return Some(password.to_owned());
    }
    let word = rest.split(['/', '?']).next()?;
    let is_host = word.contains([':', '.']) || word == "localhost";
    // The name of the scheme is in every message, and a common name of a host.
    (is_of_redis && !is_host && !scheme.ends_with(word)).then(|| word.to_owned())
}

/// The text without the secrets.
pub(crate) fn hide(text: &str, secrets: &[String]) -> String {
    let hide = |text: String, secret: &String| text.replace(secret, HIDDEN);
    secrets.iter().fold(text.to_owned(), hide)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_found_wherever_a_url_has_them() {
        for (url, secret) in [
            ("redis://:s3cret@host:1/0", Some("s3cret")),
            ("--redis=rediss://gate:a:b@c@host", Some("a:b@c")),
            ("redis://s3cret@host", Some("s3cret")),
            ("redis://s3cret", Some("s3cret")),
            ("redis://127.0.0.1:6379/", None),
            ("redis://redis", None),
            ("--redis=redis://redis/0", None),
            ("https://example.com/x", None),
            ("GET /x", None),
        ] {
            assert_eq!(secret_in(url).as_deref(), secret, "{url}");
        }
        let secrets = of(&["redis://:abc@h".into(), "redis://:abcdef@h".into()]);
        assert_eq!(hide("abcdef abc x", &secrets), "*** *** x");
    }
}
