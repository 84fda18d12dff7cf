//! A look at the programs of `on_fail` when the daemon starts: a slip in a path would else be told when a lockspace fails.

use std::sync::Arc;

use sanlock_sys::thread;

use crate::config::on_fail;
use crate::global::Global;

/// Stack of the thread.
const STACK: usize = 128 * 1024;

/// Logs which of them cannot be run as things are. In a thread of its own, which nobody waits for: their files may lie on storage that does not
/// answer.
pub(super) fn look(global: &Arc<Global>) {
    if global.config.on_fail.programs().next().is_none() {
        return;
    }
    let of_thread = Arc::clone(global);
    let body = move || {
        for (key, program) in of_thread.config.on_fail.programs() {
            if let Some(why) = on_fail::trouble(program) {
                of_thread.log.warn(format_args!(
                    "{key} = {}: the program cannot be run: {why}; it is tried all the same when a lockspace fails",
                    program.display()
                ));
            }
        }
    };
    if let Err(error) = thread::spawn("sanlock-on-fail", STACK, body) {
        global.log.debug(format_args!("nobody looks at the programs of on_fail: {error}"));
    }
}
