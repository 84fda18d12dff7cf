//! The guide's table, the findings of the program and the tests here are held together.

use std::collections::BTreeSet;
use std::fs::{read_dir, read_to_string};
use std::path::{Path, PathBuf};

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The sources in a directory.
fn sources(dir: &str) -> String {
    let files = read_dir(here(dir)).unwrap().map(|entry| entry.unwrap().path());
    files.map(|path| read_to_string(path).unwrap()).collect()
}

/// Name and severity of each finding in the guide's table.
fn rows() -> BTreeSet<(String, String)> {
    let guide = read_to_string(here("docs/guide/check.md")).unwrap();
    let mut rows = BTreeSet::new();
    for line in guide.lines().filter(|line| line.starts_with("| `")) {
        let mut cells = line.split('|').map(str::trim).skip(1);
        let (code, level) = (cells.next().unwrap().trim_matches('`'), cells.next().unwrap());
        assert!(rows.insert((code.to_owned(), level.to_owned())), "{code} is there twice");
    }
    rows
}

#[test]
fn the_guide_has_every_finding() {
    let text = sources("src/check");
    let mut said = BTreeSet::new();
    for level in ["note", "warning", "problem"] {
        for call in text.split(&format!("found.{level}(")).skip(1) {
            said.insert((call.split('"').nth(1).unwrap().to_owned(), level.to_owned()));
        }
    }
    assert!(said.len() > 50, "the sources were not understood");
    assert_eq!(said, rows());
}

/// A finding that no test of this program has made happen is not known to be made. Tests name it behind the exit status.
#[test]
fn every_finding_is_made_by_a_test() {
    let words: Vec<String> = sources("tests/check").split_whitespace().map(str::to_owned).collect();
    let seen: BTreeSet<(&str, &str)> = words
        .windows(2)
        .filter_map(|pair| {
            let [status, code] = pair else { return None };
            let status = status.rsplit('(').next()?.strip_suffix(',')?;
            Some((status, code.strip_prefix('"')?.split('"').next()?))
        })
        .collect();
    let without: Vec<String> = rows()
        .into_iter()
        .filter(|(code, level)| {
            let statuses: &[&str] = match level.as_str() {
                "note" => &["FINE"],
                // Beside a problem it does not decide the status.
                "warning" => &["WARNINGS", "PROBLEMS"],
                _ => &["PROBLEMS"],
            };
            !statuses.iter().any(|status| seen.contains(&(status, code.as_str())))
        })
        .map(|(code, level)| format!("{level} {code}"))
        .collect();
    assert!(without.is_empty(), "no test has seen: {}", without.join(", "));
    assert!(!seen.contains(&("PROBLEMS", "nothing-of-this-name")));
}
