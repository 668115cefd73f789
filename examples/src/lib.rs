//! The examples stand beside this folder; `cargo run --example quickstart` runs the first of them.
