//! The record of mutation testing stands against the code: every source file of `wire/` and `lease/` is in it, every survivor's code
//! is still there with a reason, enough mutants are killed, and not too much has changed since. `docs/proof/mutants.md`

use sanlock_mutants::record::{self, State};
use sanlock_mutants::{PACKAGES, tree};

#[test]
fn the_record_fits_the_code() {
    for (directory, package) in PACKAGES {
        let entries = tree::read_record(directory).unwrap();
        let texts = tree::texts(directory).unwrap();
        assert!(texts.len() > 10, "the sources of {package} are found");
        let standing = record::check(&entries, &texts);
        println!("{package}: {} of {} viable mutants killed", standing.killed, standing.viable);
        for (file, state) in standing.files.iter().filter(|(_, state)| **state != State::Fresh) {
            println!(
                "  {file}: {}",
                if *state == State::Stale { "changed since it was judged" } else { "not run" }
            );
        }
        let errors = standing.errors.join("\n  ");
        assert!(
            standing.errors.is_empty(),
            "tests/mutants/record/{directory}.txt:\n  {errors}\n(docs/proof/mutants.md)"
        );
    }
}
