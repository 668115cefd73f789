//! What the compiler says about wrong uses of the interceptor.

#![cfg(feature = "tonic")]

#[test]
fn a_backend_that_waits_is_refused_and_the_message_names_the_layer() {
    trybuild::TestCases::new().compile_fail("tests/grpc/ui/*.rs");
}
