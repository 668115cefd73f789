//! The samples of the documentation, as somebody copies them: none may be a way around its own limit.

use std::fs;
use std::path::{Path, PathBuf};

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path
            .extension()
            .is_some_and(|kind| kind == "md" || kind == "rs")
        {
            found.push(path);
        }
    }
}

/// Each sample of a page or of the comments of a source, as one line without comments.
fn samples(text: &str) -> Vec<String> {
    let (mut samples, mut open) = (Vec::new(), false);
    for line in text.lines() {
        let line = line.trim();
        let line = line
            .strip_prefix("///")
            .or(line.strip_prefix("//!"))
            .unwrap_or(line)
            .trim();
        if line.starts_with("```") {
            if !open {
                samples.push(String::new());
            }
            open = !open;
        } else if let (true, Some(sample)) = (open, samples.last_mut()) {
            let code = line.split(" // ").next().unwrap_or_default();
            if !code.starts_with("// ") {
                sample.push_str(code);
            }
        }
    }
    samples
}

/// The policies of a sample, each with the calls on it.
fn policies(sample: &str) -> impl Iterator<Item = &str> {
    let policies = sample.split("Policy::new(").skip(1);
    policies.map(|policy| policy.split(';').next().unwrap_or_default())
}

#[test]
fn no_documented_sample_is_unsafe_to_copy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = vec![root.join("README.md")];
    files(&root.join("docs"), &mut found);
    for name in ["limiter", "http", "grpc", "tollgate", "macros"] {
        files(&root.join("crates").join(name).join("src"), &mut found);
    }
    let (mut outcomes, mut bans, mut headers) = (0, 0, 0);
    for path in found {
        for sample in samples(&fs::read_to_string(&path).unwrap()) {
            let place = || format!("{}: {sample}", path.display());
            for policy in policies(&sample) {
                // What looks at the outcome of logins charges every other request as well if it has no route.
                let looks = ["401", "is_success()", "strike_if("];
                if looks.iter().any(|look| policy.contains(look)) {
                    outcomes += 1;
                    assert!(policy.contains(".route("), "no route: {}", place());
                }
                // Whoever varies a header that nothing checks is never banned.
                if policy.contains(".ban(") {
                    bans += 1;
                    let varies = policy.contains("Header::new(") || policy.contains("Query::new(");
                    assert!(!varies, "a key that the caller chooses: {}", place());
                }
            }
            // Callers behind a range that is left out share the address of its servers.
            if sample.contains("ClientAddress::header(") && sample.contains("173.245.48.0/20") {
                headers += 1;
                assert!(sample.matches("/2").count() >= 2, "one range: {}", place());
            }
        }
    }
    assert!(
        outcomes > 2 && bans > 2 && headers > 0,
        "{outcomes} {bans} {headers}"
    );
}
