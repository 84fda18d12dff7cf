//! `sanlock fsck`: what is wrong with leases on storage, and its repair (docs/guide/fsck.md).
//!
//! What is wrong and what would mend it is decided by [`sanlock_lease::fsck`]. Here storage is read ([`scan`]), the findings are told
//! ([`show`]), and repairs are carried out when nobody can be harmed by them ([`repair`]).

mod overlap;
mod relate;
mod repair;
mod save;
pub(crate) mod scan;
mod show;
mod shown;

use crate::cli::doctor::{FsckArgs, UNKNOWN};
use crate::direct::report::{self, Failure};
use crate::json;
use crate::output::{FAILURE, SUCCESS, note, print};
use repair::Outcome;
use sanlock_lease::fsck::Level;
use scan::{Place, Scan};
use std::os::unix::ffi::OsStrExt;

pub(crate) const ACTION: &str = "fsck";
/// Exit status: there was damage, and there is none any more.
const REPAIRED: u8 = 2;
/// Exit status: a host may be alive.
const REFUSED: u8 = 4;

/// Carries out the command and returns the exit status.
pub(crate) fn run(args: &FsckArgs) -> u8 {
    let places = match places(args) {
        Ok(places) => places,
        Err(error) => {
            note(ACTION, &error);
            return UNKNOWN;
        }
    };
    let scan = match Scan::of(&places) {
        Ok(scan) => scan,
        Err(error) => {
            if args.json {
                json::print_failure(ACTION, error.code(), &error.to_string());
            }
            report::failed(ACTION, &error.object, &error);
            return UNKNOWN;
        }
    };
    if args.json {
        json::print_document(ACTION, &shown::Report::of(&places, &scan));
    } else {
        print(show::report(&places, &scan, args.repair));
    }
    if scan.areas.is_empty() {
        return UNKNOWN;
    }
    if !scan.damaged() {
        return if scan.nothing { UNKNOWN } else { SUCCESS };
    }
    if !args.repair {
        return FAILURE;
    }
    match repair::repair(&places, &scan, args) {
        Outcome::Refused => REFUSED,
        Outcome::Failed => UNKNOWN,
        Outcome::Nothing => FAILURE,
        Outcome::Done => again(&places),
    }
}

/// Looks once more after a repair.
fn again(places: &[Place]) -> u8 {
    match Scan::of(places) {
        Ok(scan) if scan.damaged() => {
            let left = scan.findings().filter(|(_, f)| f.problem.level() == Level::Damage).count();
            print(format!("checked again: {left} damaged place(s) left\n"));
            FAILURE
        }
        Ok(scan) if scan.nothing => {
            print(
                "checked again: what was found is repaired, but something that should be there was not found\n",
            );
            UNKNOWN
        }
        Ok(_) => {
            print("checked again: nothing is wrong any more\n");
            REPAIRED
        }
        Err(error) => {
            report::failed(ACTION, &error.object, &error);
            UNKNOWN
        }
    }
}

/// The stretches of storage named by the arguments, the lockspace given by itself last.
fn places(args: &FsckArgs) -> Result<Vec<Place>, String> {
    let read = |text: &std::ffi::OsString, only_area| {
        Place::parse(text.as_bytes(), only_area)
            .map_err(|error| format!("{}: {error}", text.to_string_lossy()))
    };
    let given = args.places.iter().map(|text| read(text, false));
    given.chain(args.lockspace.iter().map(|text| read(text, true))).collect()
}
