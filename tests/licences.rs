//! What the workspace is built from may be used and passed on: every crate comes from the registry, and under a licence of the list.

#![expect(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
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

/// What cargo knows of the workspace and everything it is built from.
fn metadata() -> Value {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(cargo)
        // What was built here is here; crates for other systems need not be.
        .args(["metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform", &platform])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn every_crate_may_be_used_and_comes_from_the_registry() {
    let metadata = metadata();
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

/// `packaging/sbom` lists what is linked in, with the licences and checksums that cargo knows, and nothing that only tests need.
#[test]
fn the_bill_of_materials_is_what_is_linked_in() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/sbom");
    let output = Command::new(script).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let bill: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&bill["bomFormat"], &bill["specVersion"]), (&"CycloneDX".into(), &"1.5".into()));
    let metadata = metadata();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let known: BTreeMap<(String, String), (String, bool)> = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| {
            let licence = text(&p["license"]).replace('/', " OR ");
            ((text(&p["name"]), text(&p["version"])), (licence, p["source"].is_string()))
        })
        .collect();
    let components = bill["components"].as_array().unwrap();
    let mut refs = BTreeSet::from(["sanlock-rs".to_owned()]);
    for component in components {
        let (name, version) = (text(&component["name"]), text(&component["version"]));
        let (licence, from_registry) = known
            .get(&(name.clone(), version.clone()))
            .unwrap_or_else(|| panic!("{name} {version} is not in the workspace"));
        assert_eq!(component["licenses"][0]["expression"], licence.as_str(), "{name}");
        assert_eq!(component["purl"], format!("pkg:cargo/{name}@{version}"));
        let hash = text(&component["hashes"][0]["content"]);
        assert_eq!(hash.len(), if *from_registry { 64 } else { 0 }, "{name}: {hash}");
        assert!(refs.insert(text(&component["bom-ref"])), "{name} twice");
    }
    for dependency in bill["dependencies"].as_array().unwrap() {
        for target in dependency["dependsOn"].as_array().unwrap().iter().chain([&dependency["ref"]]) {
            assert!(refs.contains(target.as_str().unwrap()), "{target} is no component");
        }
    }
    // All programs of the package, as it builds them.
    let build = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/build-deb")).unwrap();
    let build = build.lines().find(|line| line.starts_with("cargo build ")).unwrap();
    let built: BTreeSet<&str> =
        build.split(" -p ").skip(1).filter_map(|rest| rest.split(' ').next()).collect();
    let roots: BTreeSet<&str> = bill["dependencies"][0]["dependsOn"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|root| root.as_str()?.strip_prefix("pkg:cargo/")?.split('@').next())
        .collect();
    assert_eq!(built, roots);
    // What the programs name themselves is there, by way of cargo's own list; test tools are not.
    let names: BTreeSet<String> = components.iter().map(|component| text(&component["name"])).collect();
    for package in metadata["packages"].as_array().unwrap() {
        if !["sanlock", "sanlock-wdmd", "sanlock-daemon"].contains(&package["name"].as_str().unwrap()) {
            continue;
        }
        for dependency in package["dependencies"].as_array().unwrap() {
            if dependency["kind"].is_null() {
                assert!(names.contains(&text(&dependency["name"])), "{} is missing", dependency["name"]);
            }
        }
    }
    for name in ["proptest", "sanlock-sim", "flate2", "sanlock-manual"] {
        assert!(!names.contains(name), "{name} is not linked in");
    }
}
