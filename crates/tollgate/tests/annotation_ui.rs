//! What the compiler says to annotations, right and wrong.
//!
//! Where it is rustc that speaks, its words change with its version: after a look at them,
//! `TRYBUILD=overwrite cargo test -p tollgate --test annotation_ui` takes them over.

#![cfg(feature = "macros")]

#[test]
fn annotations_compile_or_say_at_the_token_what_is_wrong() {
    let tests = trybuild::TestCases::new();
    tests.pass("tests/ui/pass/*.rs");
    tests.compile_fail("tests/ui/fail/*.rs");
}
