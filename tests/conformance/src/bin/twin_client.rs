//! A process between the suite `twins` and a daemon: what comes on stdin goes to the daemon, what the daemon says to stdout. The daemon
//! sees this process connect, and its hang-up when it ends, as it does with the end of either side.
//!
//! Argument: RUN_DIR. Standard input and output are one socket.

use std::fs::File;
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;

fn main() {
    let run_dir = std::env::args().nth(1).unwrap_or_else(|| panic!("usage: twin_client RUN_DIR"));
    let path = Path::new(&run_dir).join("sanlock.sock");
    let daemon = UnixStream::connect(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut requests = unbuffered(io::stdin());
    let mut replies = unbuffered(io::stdout());
    // Tells that the connection stands.
    replies.write_all(b"!").unwrap_or_else(|error| panic!("stdout: {error}"));
    let mut to_daemon = &daemon;
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ = io::copy(&mut { &daemon }, &mut replies);
            std::process::exit(0);
        });
        let _ = io::copy(&mut requests, &mut to_daemon);
        // Ends the other thread, and with it the process.
        let _ = daemon.shutdown(Shutdown::Both);
    });
}

fn unbuffered(stream: impl AsFd) -> File {
    let copy = stream.as_fd().try_clone_to_owned();
    File::from(copy.unwrap_or_else(|error| panic!("cannot copy a descriptor: {error}")))
}
