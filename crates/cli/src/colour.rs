//! Colours: only on a terminal, and not if `NO_COLOR` is set.

use std::io::IsTerminal;

/// The colour of a text.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Colour {
    Green,
    Red,
    Yellow,
    Grey,
}

/// True if colours may be written there. `NO_COLOR` with any content but nothing forbids them, as does a terminal without them.
pub(crate) fn is_wanted(stream: &impl IsTerminal) -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    stream.is_terminal() && !is_set("NO_COLOR") && !is_dumb
}

/// The text in this colour.
pub(crate) fn paint(text: &str, colour: Colour) -> String {
    let code = match colour {
        Colour::Green => 32,
        Colour::Red => 31,
        Colour::Yellow => 33,
        Colour::Grey => 90,
    };
    format!("\u{1b}[{code}m{text}\u{1b}[0m")
}
