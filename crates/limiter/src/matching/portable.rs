//! Patterns in plain figures, for programs that match paths without this library.

/// A segment of a pattern: a text, and the parameter behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortableSegment {
    /// The text, in the one form of paths.
    pub prefix: String,
    /// The parameter; `None` if the segment is the text alone.
    pub param: Option<PortableParam>,
}

/// A parameter of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortableParam {
    /// The name.
    pub name: String,
    /// True if it takes all the rest of the path.
    pub is_rest: bool,
}
