//! Every patch applies to the tree as it is, and the committed table speaks of exactly these patches: each is caught, and the tree
//! without a patch passes the same campaign.

use sanlock_bugs::patch::Patch;
use sanlock_bugs::table::{Kind, Results, UNPATCHED};
use sanlock_bugs::{home, page_path, results_path, root};
use std::collections::BTreeSet;

/// Bugs there have to be.
const BUGS_MIN: usize = 25;
/// Of them, those that are to be caught without a schedule that somebody wrote down.
const UNSCRIPTED_MIN: usize = 20;

fn patches() -> Vec<Patch> {
    Patch::all(&home().join("patches")).expect("patches")
}

fn results() -> Results {
    let text = std::fs::read_to_string(results_path()).expect("results");
    Results::parse(&text).expect("rows")
}

#[test]
fn every_patch_applies_and_changes_only_the_product() {
    let all = patches();
    assert!(all.len() >= BUGS_MIN, "{} patches", all.len());
    for patch in &all {
        for path in patch.paths() {
            assert!(
                ["lease/src/", "manager/src/", "wdmd/src/decide/"].iter().any(|p| path.starts_with(p)),
                "{path}"
            );
        }
        if let Err(e) = patch.apply(&root()) {
            panic!(
                "{e}\nadapt the patch to the code; if the mistake cannot be made any more, remove it and its row"
            );
        }
    }
}

#[test]
fn no_two_patches_have_one_number_or_break_the_same_thing_in_the_same_words() {
    let all = patches();
    let numbers: BTreeSet<&str> = all.iter().filter_map(|p| p.name.split('-').next()).collect();
    let words: BTreeSet<&str> = all.iter().map(|p| p.what.as_str()).collect();
    assert_eq!((numbers.len(), words.len()), (all.len(), all.len()));
}

#[test]
fn every_patch_is_caught_and_the_tree_without_any_passes() {
    let results = results();
    let named: BTreeSet<String> = patches().into_iter().map(|p| p.name).collect();
    let rows: BTreeSet<String> = results.0.keys().filter(|name| *name != UNPATCHED).cloned().collect();
    assert_eq!(named, rows, "run: cargo run -p sanlock-bugs");
    for (name, row) in &results.0 {
        let wanted = if name == UNPATCHED { "passed" } else { "caught" };
        assert_eq!(row.verdict, wanted, "{name}");
    }
    let passed = results.0.get(UNPATCHED).map(|row| row.verdict.as_str());
    assert_eq!(passed, Some("passed"));
    let unscripted = results.0.values().filter(|row| {
        row.verdict == "caught" && [Kind::Random, Kind::Exhaustive].iter().any(|kind| kind.name() == row.kind)
    });
    assert!(unscripted.count() >= UNSCRIPTED_MIN);
}

#[test]
fn the_page_shows_the_table() {
    let page = std::fs::read_to_string(page_path()).expect("page");
    let fresh = results().page(&page, &patches()).expect("a place for the table");
    assert!(page == fresh, "run: cargo run -p sanlock-bugs -- --page");
}
