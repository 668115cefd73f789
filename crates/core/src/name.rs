//! The valid names of policies and quotas.

/// The most bytes a name has.
pub const MAX_NAME_LEN: usize = 64;

/// Says whether headers, logs and Redis keys can carry this name as it is: at most [`MAX_NAME_LEN`] of `a-z`, `0-9`, `-`, `_`,
/// `.` and `/`, and the first a letter or digit.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_./".contains(c);
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    name.len() <= MAX_NAME_LEN && starts_well && name.chars().all(allowed)
}
