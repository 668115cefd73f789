//! Compiles Envoy's messages, without an installed protoc.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(["envoy/service/ratelimit/v3/rls.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .include_file("envoy.rs")
        .compile_fds(files)?;
    Ok(())
}
