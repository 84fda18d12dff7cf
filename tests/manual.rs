//! The help text, the manual pages and the shell completions of `sanlock` say the same.
//!
//! `UPDATE_COMPLETIONS=1 cargo test -p sanlock --test manual` writes the completions anew after a change of the help text or the page.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use sanlock_manual::complete::Program;
use sanlock_manual::help::{self, Entry};
use sanlock_manual::page::{self, Item};
use sanlock_manual::{complaints, has, repository, stdout_of};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

const SANLOCK: &str = env!("CARGO_BIN_EXE_sanlock");
/// Commands that `sanlock.8` describes in full; the others have pages of their own.
const IN_SANLOCK_8: [&str; 5] = ["daemon", "client", "direct", "help", "version"];

fn entries() -> Vec<Entry> {
    help::sanlock(&stdout_of(SANLOCK, &["help"]))
}

fn page(name: &str) -> Vec<Item> {
    page::items(&std::fs::read_to_string(repository(&format!("man/{name}"))).unwrap())
}

fn set<'a>(flags: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    flags.into_iter().map(str::to_owned).collect()
}

#[test]
fn sanlock_8_has_every_command_action_and_option_of_the_help_and_no_others() {
    let mut said: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for item in page("sanlock.8") {
        let name = match item.section.as_str() {
            "COMMANDS" | "CLIENT ACTIONS" | "DIRECT ACTIONS" => item.name.clone(),
            "DAEMON OPTIONS" => "daemon".to_owned(),
            _ => continue,
        };
        said.entry(name).or_default().extend(item.flags);
    }
    let entries = entries();
    assert!(entries.len() > 45, "the help text was not understood: {entries:?}");
    let help: BTreeMap<String, BTreeSet<String>> = entries
        .into_iter()
        .map(|entry| {
            // The options of these are in their own pages.
            let own_page = !entry.name.contains(' ') && !IN_SANLOCK_8.contains(&entry.name.as_str());
            let flags = if own_page { BTreeSet::new() } else { entry.flags() };
            (entry.name, flags)
        })
        .collect();
    for (name, flags) in &help {
        assert_eq!(Some(flags), said.get(name), "{name}: in the help, and in sanlock.8");
    }
    for name in said.keys() {
        assert!(help.contains_key(name), "{name} is in sanlock.8, but not in the help");
    }
}

/// `sanlock-NAME.8` for `sanlock NAME`: usage text, help of the command, and page agree.
#[test]
fn a_command_with_a_help_of_its_own_has_a_page_with_the_same_options() {
    let mut pages: BTreeSet<String> = std::fs::read_dir(repository("man"))
        .unwrap()
        .filter_map(|file| {
            let name = file.unwrap().file_name().into_string().unwrap();
            Some(name.strip_prefix("sanlock-")?.strip_suffix(".8").unwrap().to_owned())
        })
        .collect();
    let help_itself = set(["-h", "--help"]);
    for entry in entries() {
        if entry.name.contains(' ') || IN_SANLOCK_8.contains(&entry.name.as_str()) {
            continue;
        }
        let name = entry.name.as_str();
        assert!(pages.remove(name), "sanlock {name} has no page man/sanlock-{name}.8");
        let own: BTreeSet<String> = help::listed(&stdout_of(SANLOCK, &[name, "--help"]))
            .into_iter()
            .map(|option| option.flag)
            .collect();
        let described: BTreeSet<String> =
            page(&format!("sanlock-{name}.8")).into_iter().flat_map(|item| item.flags).collect();
        assert_eq!(own, described, "sanlock {name} --help, and its page");
        let without_help = |flags: &BTreeSet<String>| -> BTreeSet<String> {
            flags.difference(&help_itself).cloned().collect()
        };
        assert_eq!(
            without_help(&own),
            without_help(&entry.flags()),
            "sanlock {name} --help, and sanlock help"
        );
    }
    assert!(pages.is_empty(), "pages of commands that do not exist: {pages:?}");
}

#[test]
fn the_pages_are_well_formed() {
    for file in std::fs::read_dir(repository("man")).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|extension| extension != "md") {
            assert_eq!(complaints(&path), "", "{}", path.display());
        }
    }
}

/// The entries with what the manual says first about each action.
fn described_entries() -> Vec<Entry> {
    let items = page("sanlock.8");
    let mut entries = entries();
    for entry in &mut entries {
        if !entry.text.is_empty() {
            continue;
        }
        let item = items.iter().find(|item| item.name == entry.name);
        let summary = item.map_or("", |item| item.summary.as_str());
        assert!(
            summary.ends_with('.'),
            "{}: its text in sanlock.8 begins with a plain sentence on a line of its own",
            entry.name
        );
        entry.text = summary.trim_end_matches('.').to_owned();
    }
    entries
}

fn program(entries: &[Entry]) -> Program<'_> {
    Program {
        name: "sanlock",
        entries,
        default: "client",
        made_by: "Made from its help and manual by tests/manual.rs.",
    }
}

#[test]
fn the_completions_are_those_of_this_help_text() {
    let entries = described_entries();
    program(&entries).assert_written();
}

/// What bash offers after these words.
fn bash(words: &[&str]) -> BTreeSet<String> {
    let script = "source \"$1\"; shift; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _sanlock; printf '%s\\n' \"${COMPREPLY[@]}\"";
    let output = Command::new("bash")
        .args(["--norc", "-c", script, "bash"])
        .arg(repository("completions/sanlock.bash"))
        .args(words)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{words:?}");
    String::from_utf8(output.stdout).unwrap().lines().filter(|l| !l.is_empty()).map(str::to_owned).collect()
}

#[test]
fn bash_offers_every_command_and_option() {
    if !has("bash") {
        return;
    }
    let entries = entries();
    let first = bash(&["sanlock", ""]);
    for Entry { name, .. } in &entries {
        match name.split_once(' ') {
            None => assert!(first.contains(name), "{name}"),
            Some((command, action)) => {
                assert!(bash(&["sanlock", command, action]).contains(action), "{name}");
                assert!(command != "client" || first.contains(action), "{name}, without client");
            }
        }
    }
    for entry in &entries {
        let mut words = vec!["sanlock"];
        words.extend(entry.name.split(' '));
        words.push("-");
        assert_eq!(bash(&words), entry.flags(), "{}", entry.name);
    }
    assert_eq!(bash(&["sanlock", "gets", "-"]), set(["-h", "--json"]), "client may be left out");
    assert_eq!(bash(&["sanlock", "gets", "-h", ""]), set(["0", "1"]));
    assert_eq!(bash(&["sanlock", "direct", "init", "-A", ""]), set(["1M", "2M", "4M", "8M"]));
    assert_eq!(bash(&["sanlock", "add_lockspace", "-o", ""]), set([]), "a number");
    let path = repository("completions/sanlock.ba");
    let whole = set([repository("completions/sanlock.bash").to_str().unwrap()]);
    let path = path.to_str().unwrap();
    assert_eq!(bash(&["sanlock", "direct", "dump", path]), whole);
    for words in [&["check"][..], &["fsck", "--repair"], &["fsck", path], &["fsck", "--lockspace"], &["who"]]
    {
        assert_eq!(bash(&[&["sanlock"], words, &[path]].concat()), whole, "{words:?}");
    }
    assert_eq!(bash(&["sanlock", "add_lockspace", "-s", "LS", ":", "1", ":", path]), whole);
    assert_eq!(bash(&["sanlock", "command", "-r", "LS", "-c", "/bin/ls", path]), whole);
}

#[test]
fn fish_offers_every_command_and_option() {
    if !has("fish") {
        return;
    }
    // One run for all: each line is a command line to complete.
    let entries = entries();
    let lines: Vec<String> = std::iter::once("sanlock ".to_owned())
        .chain(entries.iter().map(|entry| format!("sanlock {} -", entry.name)))
        .collect();
    let script = "source $argv[1]; for line in $argv[2..-1]; complete -C $line; echo ==; end";
    let output = Command::new("fish")
        .args(["--no-config", "-c", script])
        .arg(repository("completions/sanlock.fish"))
        .args(&lines)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let text = String::from_utf8(output.stdout).unwrap();
    let offered: Vec<BTreeSet<String>> = text
        .split("==\n")
        .map(|part| part.lines().filter_map(|line| Some(line.split('\t').next()?.to_owned())).collect())
        .collect();
    let (first, rest) = offered.split_first().unwrap();
    for entry in &entries {
        let word = entry.name.strip_prefix("client ").unwrap_or(&entry.name);
        assert!(word.contains(' ') || first.contains(word), "{word}");
    }
    for (entry, flags) in entries.iter().zip(rest) {
        // It also offers words that have the dash somewhere, or something like it.
        let flags: BTreeSet<String> = flags.iter().filter(|word| word.starts_with('-')).cloned().collect();
        assert_eq!(flags, entry.flags(), "{}", entry.name);
    }
}

#[test]
fn zsh_understands_its_completions() {
    if !has("zsh") {
        return;
    }
    for file in ["_sanlock", "_wdmd"] {
        let output =
            Command::new("zsh").args(["-f", "-n"]).arg(repository(&format!("completions/{file}"))).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{file}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
