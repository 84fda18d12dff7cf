//! `sanlock demo`, which follows.

use crate::cli::command::DemoArgs;
use crate::output::print_error;

/// Runs the demo. Returns the exit status.
pub(crate) fn run(args: &DemoArgs) -> i32 {
    print_error(format!("demo is not supported by this version ({args:?})\n"));
    1
}
