//! Real watchdog resets. Two hosts in virtual machines share a disk; one of them fails in some way; from outside it is
//! recorded when its holder wrote last, when it was reset, and when the other host took the lease.
//!
//! See `tests/vm/README.md` for the commands. The same program is copied into the guests, where it is the holder.

mod guest;
mod holder;
mod image;
mod judge;
mod layout;
mod lvm;
mod play;
mod qmp;
mod scenario;
mod solo;
mod table;
mod timeline;
mod watch;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.split_first() {
        Some((word, rest)) if word == "holder" => ExitCode::from(holder::main(rest)),
        _ => table::main(&args),
    }
}
