//! The script, put together of the files in `lua/`, and its name on the server.

use std::sync::OnceLock;

/// What is loaded. The order is part of it: a file uses the names of those before it.
pub(crate) const SOURCE: &str = concat!(
    include_str!("../lua/head.lua"),
    include_str!("../lua/quick.lua"),
    include_str!("../lua/rules.lua"),
    include_str!("../lua/gcra.lua"),
    include_str!("../lua/fixed_window.lua"),
    include_str!("../lua/sliding_window.lua"),
    include_str!("../lua/rolling_window.lua"),
    include_str!("../lua/sliding_log.lua"),
    include_str!("../lua/main.lua"),
);

/// The SHA-1 by which `EVALSHA` knows it, computed once.
pub(crate) fn sha() -> &'static str {
    static SHA: OnceLock<String> = OnceLock::new();
    SHA.get_or_init(|| redis::Script::new(SOURCE).get_hash().to_owned())
}
