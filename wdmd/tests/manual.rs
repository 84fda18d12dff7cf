//! The help text, the manual page and the shell completions of `wdmd` say the same.
//!
//! `UPDATE_COMPLETIONS=1 cargo test -p sanlock-wdmd --test manual` writes the completions anew after a change of the help text.

use sanlock_manual::complete::Program;
use sanlock_manual::help::{self, Entry};
use sanlock_manual::{page, repository, stdout_of};
use std::collections::BTreeSet;

fn entry() -> Entry {
    let options = help::listed(&stdout_of(env!("CARGO_BIN_EXE_wdmd"), &["--help"]));
    Entry { options, ..Entry::default() }
}

#[test]
fn wdmd_8_has_every_option_of_the_help_and_no_others() {
    let flags = entry().flags();
    assert!(flags.len() > 15, "the help text was not understood: {flags:?}");
    let page = std::fs::read_to_string(repository("man/wdmd.8")).unwrap();
    let described: BTreeSet<String> = page::items(&page).into_iter().flat_map(|item| item.flags).collect();
    assert_eq!(flags, described);
}

#[test]
fn the_completions_are_those_of_this_help_text() {
    let entries = [entry()];
    let made_by = "Made from its help by wdmd/tests/manual.rs.";
    Program { name: "wdmd", entries: &entries, default: "", made_by }.assert_written();
}

#[test]
fn bash_offers_every_option() {
    let script =
        r#"source "$1"; COMP_WORDS=(wdmd "$2" "$3"); COMP_CWORD=2; _wdmd; printf '%s\n' "${COMPREPLY[@]}""#;
    let offered = |before: &str, word: &str| -> BTreeSet<String> {
        let file = repository("completions/wdmd.bash");
        let text = stdout_of("bash", &["--norc", "-c", script, "bash", file.to_str().unwrap(), before, word]);
        text.split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!(offered("-D", "-"), entry().flags());
    assert_eq!(offered("-H", ""), ["0", "1"].map(str::to_owned).into());
}
