//! The bodies of the fuzz targets, over the corpus and over random changes of it.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tollgate_fuzz::BODIES;

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let files = fs::read_dir(folder.join(name)).unwrap();
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

/// An input of the corpus with some bytes removed, inserted or replaced.
fn changed(inputs: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let special = prop::sample::select(b",;=/%\"\\ \n0919{}[]:*".to_vec());
    let byte = prop_oneof![special, any::<u8>()];
    let change = (
        any::<prop::sample::Index>(),
        0..4_usize,
        prop::collection::vec(byte, 0..4),
    );
    let changes = prop::collection::vec(change, 0..4);
    (prop::sample::select(inputs), changes).prop_map(|(mut input, changes)| {
        for (at, removed, put) in changes {
            let at = at.index(input.len() + 1);
            let end = (at + removed).min(input.len());
            input.splice(at..end, put);
        }
        input
    })
}

#[test]
fn every_body_has_a_target_and_a_corpus_and_holds_over_it() {
    let manifest = include_str!("../../../../fuzz/Cargo.toml");
    for (name, body) in BODIES {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
        let inputs = corpus(name);
        assert!(inputs.len() >= 3, "{name}: {} inputs", inputs.len());
        for input in inputs {
            body(&input);
        }
    }
}

proptest! {
    #[test]
    fn every_body_holds_over_what_looks_like_the_corpus(
        inputs in BODIES.map(|(name, _)| changed(corpus(name))),
    ) {
        for ((_, body), input) in BODIES.into_iter().zip(inputs) {
            body(&input);
        }
    }

    #[test]
    fn every_body_holds_over_random_bytes(input in prop::collection::vec(any::<u8>(), 0..64)) {
        for (_, body) in BODIES {
            body(&input);
        }
    }
}
