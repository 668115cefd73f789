//! The compiler's words about annotations, right and wrong.
//!
//! Where it is rustc that speaks, its words change with its version: CONTRIBUTING.md says how to take them over.

#[test]
fn annotations_in_all_their_forms_compile() {
    trybuild::TestCases::new().pass("tests/annotation/pass/*.rs");
}

#[rustversion::attr(not(stable(1.95)), ignore = "the words are those of Rust 1.95")]
#[test]
fn wrong_annotations_say_at_the_token_what_is_wrong() {
    trybuild::TestCases::new().compile_fail("tests/annotation/fail/*.rs");
}
