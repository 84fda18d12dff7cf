//! What the workspace is built from may be used and passed on: every crate comes from the registry, and under a licence of the list.

use serde_json::Value;
use std::process::Command;

/// Licences without conditions but to keep their text and the names of the authors.
const ALLOWED: [&str; 8] =
    ["0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "MIT", "Unicode-3.0", "Unlicense", "Zlib"];
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Whether an SPDX expression leaves a choice of licences that are all allowed. A slash is an old way to write `OR`.
fn allowed(expression: &str) -> bool {
    let expression = expression.replace('/', " OR ").replace(" WITH LLVM-exception", "");
    // `AND` of parts in parentheses is the only nesting there is; anything else is not understood, and not allowed.
    expression.split(" AND ").all(|part| {
        let part = part.trim();
        let inner = part.strip_prefix('(').and_then(|part| part.strip_suffix(')')).unwrap_or(part);
        inner.split(" OR ").any(|licence| ALLOWED.contains(&licence.trim()))
    })
}

#[test]
fn every_crate_may_be_used_and_comes_from_the_registry() {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(cargo)
        // What was built here is here; crates for other systems need not be.
        .args(["metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform", &platform])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 50, "the list is not whole");
    for package in packages {
        let (name, licence) = (&package["name"], package["license"].as_str().unwrap_or_default());
        assert!(allowed(licence), "{name}: licence {licence:?}");
        assert!(
            package["source"].is_null() || package["source"] == REGISTRY,
            "{name}: {}",
            package["source"]
        );
    }
}

#[test]
fn expressions() {
    for yes in ["MIT", "MIT/Apache-2.0", "MIT OR LGPL-2.1-or-later", "(MIT OR Apache-2.0) AND Unicode-3.0"] {
        assert!(allowed(yes), "{yes}");
    }
    for no in ["", "GPL-2.0-only", "MIT AND GPL-3.0", "(MIT OR Apache-2.0) AND OpenSSL", "MIT-like"] {
        assert!(!allowed(no), "{no}");
    }
}
