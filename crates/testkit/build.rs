//! Compiles the library of wrong clocks, and the service that tests call.

use std::env;
use std::error::Error;
use std::path::Path;
use std::process::Command;

fn main() -> Result<(), Box<dyn Error>> {
    clock()?;
    #[cfg(feature = "grpc")]
    {
        println!("cargo::rerun-if-changed=proto");
        let files = protox::compile(["proto/shop.proto"], ["proto"])?;
        tonic_prost_build::configure().compile_fds(files)?;
    }
    Ok(())
}

/// Without a compiler, only the tests that need it fail.
fn clock() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=src/clock.c");
    println!("cargo::rerun-if-env-changed=CC");
    let library = Path::new(&env::var("OUT_DIR")?).join("clock.so");
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let compiled = Command::new(compiler)
        .args(["-shared", "-fPIC", "-O2", "-o"])
        .arg(&library)
        .arg("src/clock.c")
        .status();
    let path = match compiled {
        Ok(status) if status.success() => library.display().to_string(),
        _ => String::new(),
    };
    println!("cargo::rustc-env=TOLLGATE_CLOCK_LIBRARY={path}");
    Ok(())
}
