//! Compiles the services of the examples, without a protoc that would have to be installed.

use std::env;
use std::error::Error;
use std::fs;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let mut compiler = protox::Compiler::new(["proto", tollgate::proto::INCLUDE])?;
    compiler
        .include_imports(true)
        .open_files(["greeter.proto", "limited.proto"])?;
    // Read by the server when it starts. Code is generated from a form of it that has no options any more.
    let descriptors = Path::new(&env::var("OUT_DIR")?).join("descriptors.bin");
    fs::write(descriptors, compiler.encode_file_descriptor_set())?;
    tonic_prost_build::configure().compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
