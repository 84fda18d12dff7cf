//! `sanlock top`: starts the program of that name beside this one.
//!
//! The screen is a program of its own because this one is also the daemon, which locks what it consists of into memory: what draws
//! on terminals has no place in it.

use crate::cli::top::TopArgs;
use crate::output::{FAILURE, failure};
use sanlock_wire::code;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

const ACTION: &str = "top";
const PROGRAM: &str = "sanlock-top";

/// Becomes that program; returns only if that fails.
pub(crate) fn run(args: &TopArgs) -> u8 {
    let next = Some("install it beside sanlock, from the same package or build");
    let (object, error) = match std::env::current_exe() {
        Ok(own) => {
            let program = own.with_file_name(PROGRAM);
            let error = Command::new(&program).args(argv(args)).exec();
            (program.display().to_string(), error)
        }
        Err(error) => (PROGRAM.to_owned(), error),
    };
    let result = -error.raw_os_error().unwrap_or(-code::EIO);
    failure(ACTION, &object, &error.to_string(), result, next);
    FAILURE
}

/// The arguments that read as these.
fn argv(args: &TopArgs) -> Vec<OsString> {
    let mut argv: Vec<OsString> =
        vec!["--interval".into(), args.interval.to_string().into(), "--sort".into(), args.sort.word().into()];
    if args.once {
        argv.push("--once".into());
    }
    if let Some(lockspace) = &args.lockspace {
        argv.extend(["--".into(), lockspace.into()]);
    }
    argv
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::top::Sort;
    use clap::Parser;

    #[test]
    fn arguments_read_as_what_they_were_made_from() {
        for sort in [Sort::Name, Sort::Left, Sort::Latency] {
            let args = TopArgs { lockspace: Some("-x".to_owned()), interval: 7, sort, once: true };
            let line = std::iter::once(OsString::from("top")).chain(argv(&args));
            assert_eq!(TopArgs::try_parse_from(line).unwrap(), args);
        }
        let plain = TopArgs::try_parse_from(["top"]).unwrap();
        assert_eq!((plain.lockspace.as_deref(), plain.interval, plain.once), (None, 2, false));
        for refused in [&["top", "--interval", "0"][..], &["top", "--sort", "x"], &["top", "a", "b"]] {
            assert!(TopArgs::try_parse_from(refused).is_err(), "{refused:?}");
        }
    }
}
