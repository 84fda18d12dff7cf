//! The `sanlock` command: reads its arguments, asks the daemon or looks at storage, prints. It holds no lease logic.
//!
//! [`cli`] turns the arguments into a plain value, [`client`], [`direct`], [`daemon`], [`who`], [`top`], [`explain`], [`fsck`], [`check`], [`exporter`] and [`demo`] carry it out.
#![forbid(unsafe_code)]

mod check;
mod cli;
mod client;
mod configured;
mod daemon;
mod demo;
mod direct;
mod explain;
mod exporter;
mod fsck;
mod index;
mod json;
mod output;
mod progress;
mod subject;
mod top;
mod version;
mod who;

use cli::{Command, Parsed, UsageError};
use output::{FAILURE, SUCCESS, print, print_error};
use progress::Signs;
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<Vec<u8>> = std::env::args_os().map(OsStringExt::into_vec).collect();
    let mut lost_as = FAILURE;
    let status = match cli::parse(&args) {
        Ok(Parsed { debug_lines, command, json, progress }) => {
            output::debug(&debug_lines);
            lost_as = command.output_lost();
            run(command, json, Signs::wanted(progress))
        }
        Err(UsageError { stdout, stderr, status }) => {
            print(stdout);
            print_error(stderr);
            status
        }
    };
    ExitCode::from(if status == SUCCESS && output::lost() { lost_as } else { status })
}

fn run(command: Command, json: bool, signs: Signs) -> u8 {
    match command {
        Command::Help { action_missing } => {
            print(cli::help::USAGE);
            if action_missing { FAILURE } else { SUCCESS }
        }
        Command::Version => {
            print(format!("{}\n", version::COMPATIBLE));
            SUCCESS
        }
        Command::BuildInfo { program } => {
            let built = format!(" {} (sanlock-rs {})\n", version::COMPATIBLE, env!("CARGO_PKG_VERSION"));
            print([program.as_slice(), built.as_bytes()].concat());
            SUCCESS
        }
        Command::Daemon(overrides) => daemon::run(&overrides),
        Command::Who(args) => who::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Fsck(args) => fsck::run(&args),
        Command::Exporter(args) => exporter::run(&args),
        Command::Demo(args) => u8::try_from(demo::run(&args)).unwrap_or(FAILURE),
        Command::Client(action) => client::run(action, json, signs),
        Command::Direct(action) => direct::run(action, json, signs),
    }
}
