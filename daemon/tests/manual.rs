//! `sanlock.conf(5)` and the example file have every key that the daemon reads, with its default, and no others.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use sanlock_daemon::config::Config;
use sanlock_manual::page::{self, Item};
use sanlock_manual::repository;
use std::collections::BTreeSet;

/// Defaults that are no word of the file: something is found out or computed when nothing is given.
const DERIVED: [&str; 7] = [
    "kill_grace_seconds",
    "renewal_read_extend_sec",
    "uname",
    "gname",
    "our_host_name",
    "debug_cmd",
    "debug_io",
];

fn items() -> Vec<Item> {
    let page = std::fs::read_to_string(repository("man/sanlock.conf.5")).unwrap();
    page::items(&page).into_iter().filter(|item| !item.name.is_empty()).collect()
}

/// The keys that the daemon's code knows, those it has only a message for included.
fn keys() -> BTreeSet<String> {
    let source = std::fs::read_to_string(repository("daemon/src/config.rs")).unwrap();
    let (_, set) = source.split_once("fn set(&mut self, setting: &Setting<'_>)").unwrap();
    let (set, _) = set.split_once("\n    }\n").unwrap();
    let parts: Vec<&str> = set.split('"').collect();
    let literals = parts.chunks_exact(2).filter(|pair| pair[0].ends_with('b')).map(|pair| pair[1].to_owned());
    literals.chain(["on_fail".to_owned()]).collect()
}

fn with_line(line: &str) -> Config {
    let mut config = Config::default();
    config.apply_file(line.as_bytes());
    config
}

#[test]
fn every_key_is_in_the_page_and_the_other_way_round() {
    let keys = keys();
    assert!(keys.len() > 30, "the code was not understood: {keys:?}");
    assert_eq!(keys, items().into_iter().map(|item| item.name).collect());
    for key in keys {
        let warnings = with_line(&format!("{key} = ?\n")).warnings;
        assert!(
            !warnings.iter().any(|warning| warning.text.contains("unknown setting")),
            "{key}: {warnings:?}"
        );
    }
}

#[test]
fn the_defaults_in_the_page_are_the_daemons() {
    let mut derived = BTreeSet::new();
    for Item { name, section, parenthesis, .. } in items() {
        let default = parenthesis.unwrap_or_else(|| panic!("{name} has no default in sanlock.conf(5)"));
        let mut config = with_line(&format!("{name} = {default}\n"));
        let warnings: Vec<String> = config.warnings.drain(..).map(|warning| warning.text).collect();
        match section.as_str() {
            "SETTINGS OF LATER RELEASES" => {
                assert!(warnings.iter().any(|text| text.contains("5.1")), "{name}: {warnings:?}");
                continue;
            }
            "SETTINGS WITHOUT EFFECT" => {}
            _ => assert!(default == "derived" || warnings.is_empty(), "{name}: {warnings:?}"),
        }
        if default == "derived" {
            derived.insert(name);
        } else {
            assert_eq!(config, Config::default(), "{name} = {default}");
            // The comparison means something: another value makes a difference.
            let other = [2, 4, 1].map(|number| with_line(&format!("{name} = {number}\n")));
            let words = ["/bin/true", "none"].map(|word| with_line(&format!("{name} = {word}\n")));
            let changed =
                |config: &Config| Config { warnings: Vec::new(), ..config.clone() } != Config::default();
            assert!(other.iter().chain(&words).any(changed), "{name} changes nothing");
        }
    }
    assert_eq!(derived, DERIVED.map(str::to_owned).into());
}

/// `packaging/sanlock.conf`: each setting is there as a comment with its default, or with a word in capitals where it has none.
#[test]
fn the_example_file_shows_every_setting_with_its_default() {
    let text = std::fs::read_to_string(repository("packaging/sanlock.conf")).unwrap();
    let mut config = Config::default();
    config.apply_file(text.as_bytes());
    assert_eq!(config, Config::default(), "as it is it changes nothing, and nothing is to be said about it");
    let mut shown = BTreeSet::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("# ")) {
        let Some((key, value)) = line.split_once(" = ") else { continue };
        if value.chars().all(|c| c.is_ascii_uppercase()) {
            assert!(DERIVED.contains(&key), "{key}");
        } else {
            assert_eq!(with_line(line), Config::default(), "{line}");
        }
        shown.insert(key.to_owned());
    }
    // Words for those who look for what happens inside.
    shown.insert("debug_cmd".to_owned());
    let with_effect = items().into_iter().filter(|item| item.section == "SETTINGS");
    assert_eq!(shown, with_effect.map(|item| item.name).collect());
}
