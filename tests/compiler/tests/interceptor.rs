//! The compiler's words about wrong uses of the interceptor, in the words of one version: CONTRIBUTING.md says how to take over
//! those of another.

#[rustversion::attr(not(stable(1.95)), ignore = "the words are those of Rust 1.95")]
#[test]
fn a_backend_that_waits_is_refused_and_the_message_names_the_layer() {
    trybuild::TestCases::new().compile_fail("tests/interceptor/*.rs");
}
