//! Compiles the service that tests call.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    #[cfg(feature = "grpc")]
    {
        println!("cargo::rerun-if-changed=proto");
        let files = protox::compile(["proto/shop.proto"], ["proto"])?;
        tonic_prost_build::configure().compile_fds(files)?;
    }
    Ok(())
}
