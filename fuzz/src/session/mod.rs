//! Whole sessions: several clients send bytes to a daemon core, and everything else happens in any order that its rules allow.
//!
//! The core is the production decoder, the production conversion of structures, the production manager and the production
//! encoder; in place of sockets, threads and disks stand the fuzzer's choices. [`front`] is what the daemon's front does between
//! them, [`world`] and [`results`] what the rest of the daemon answers.
//!
//! * Nothing panics, and every request that has an answer gets exactly one, which the client can decode.
//! * A token is granted only for a lease that a machine acquired, in its generation, and that nothing gave up since.
//! * Nothing is written for a resource while something else may be, nor in a lockspace that is gone or unwatched.
//! * What is remembered is within the limits, and once all clients are gone and everything has ended, nothing is.

mod ending;
mod front;
mod requests;
mod results;
mod world;

use crate::data::Data;
use world::World;

/// Steps of one input.
const STEPS_MAX: usize = 400;

/// See the module.
pub fn session(data: &[u8]) {
    let mut data = Data::new(data);
    let mut world = World::new(data.one_in(2));
    world.settle_in();
    for _ in 0..STEPS_MAX {
        if world.exited() || !data.more() {
            break;
        }
        world.step(&mut data);
    }
    world.finish();
}
