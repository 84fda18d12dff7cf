//! Value blocks (lease-algorithms.md 7.4, socket-protocol.md 7.24, 7.25, rule R8): a sector of bytes that belongs to a resource.
//!
//! It is read when the lease is taken and kept in memory. An exclusive holder may set it; what was set is written before anything of
//! the lease is given up, with the first write of a release or of a conversion to shared.

use crate::action::{Action, Reply};
use crate::ids::{ConnId, ResourceId};
use crate::state::Resource;
use crate::{Level, Manager, log, reply};
use sanlock_lease::code::ReturnCode;
use sanlock_lease::machine::IoFailure;
use sanlock_lease::name::Name;
use sanlock_lease::paxos::ReleaseError;
use sanlock_lease::paxos::release::Released;
use sanlock_lease::paxos::take::ValueRead;
use std::sync::Arc;

/// Failed writes of a value block after which the lease is given up without it, so that a disk that cannot write this one sector
/// keeps nobody out for ever. A write that may still land is counted when that is over: nothing may be given up before.
pub(crate) const WRITES_MAX: u32 = 4;

/// Errors of this host that say nothing of the sector: EAGAIN (no thread, or too many operations hang), ENOMEM, ENFILE, EMFILE; and ETIMEDOUT, of
/// an open that hangs.
const OF_THIS_HOST: [i32; 4] = [11, 12, 23, 24];
const ETIMEDOUT: i32 = 110;

/// Whether a write of a value block that ended so was tried: others are no reason to give it up, however many there are.
fn was_tried(failure: IoFailure) -> bool {
    match failure {
        // With nothing outstanding it was never begun.
        IoFailure::TimedOut => false,
        IoFailure::NotOpen(errno) => errno != ETIMEDOUT && !OF_THIS_HOST.contains(&errno),
        IoFailure::Os(errno) => !OF_THIS_HOST.contains(&errno),
        IoFailure::Short => true,
    }
}

/// The same of a release's result.
pub(crate) fn failed_to_write(result: &Result<Released, ReleaseError>) -> bool {
    matches!(result, Err(ReleaseError::Value(failure)) if was_tried(*failure))
}

/// The value block of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    /// A sector, or why it could not be read.
    content: Result<Arc<[u8]>, ReturnCode>,
    /// It was set, and is not on disk yet.
    dirty: bool,
    /// Writes that failed.
    failures: u32,
    /// The last one may still land.
    in_doubt: bool,
}

impl Value {
    pub(crate) fn new(read: ValueRead) -> Self {
        Self { content: read.map_err(|e| ReturnCode::from(&e)), dirty: false, failures: 0, in_doubt: false }
    }

    /// What is to be written before the lease is given up.
    pub(crate) fn unwritten(&self) -> Option<Arc<[u8]>> {
        self.content.as_ref().ok().filter(|_| self.dirty).cloned()
    }

    fn set(&mut self, bytes: &[u8], sector: usize) -> Result<(), ReturnCode> {
        if bytes.is_empty() {
            return Err(ReturnCode::EINVAL);
        }
        if bytes.len() > sector {
            return Err(ReturnCode::E2BIG);
        }
        let mut content = match &self.content {
            Ok(content) => content.to_vec(),
            // Without the rest only a whole block is known.
            Err(code) if bytes.len() < sector => return Err(*code),
            Err(_) => vec![0; sector],
        };
        for (to, from) in content.iter_mut().zip(bytes) {
            *to = *from;
        }
        self.content = Ok(Arc::from(content));
        self.dirty = true;
        self.failures = 0;
        Ok(())
    }
}

impl Resource {
    /// What its value block is to be before the lease is given up.
    pub(crate) fn unwritten_value(&self) -> Option<Arc<[u8]>> {
        self.value.as_ref().and_then(Value::unwritten)
    }

    fn is_held_as(&self, names: (Name, Name)) -> bool {
        self.spec.names() == names && self.is_granted()
    }

    fn set_value(&mut self, bytes: &[u8]) -> Result<(), ReturnCode> {
        let value = self.value.as_mut().ok_or(ReturnCode::EINVAL)?;
        if self.converting.is_some() {
            // Being written, or about to be shared: it would reach nobody.
            return Err(ReturnCode::EAGAIN);
        }
        if self.spec.shared {
            // A shared holder's value is never written.
            return Err(ReturnCode::EINVAL);
        }
        value.set(bytes, self.geometry.sector().slice_len())
    }
}

impl Manager {
    pub(crate) fn set_lvb(&mut self, conn: ConnId, names: (Name, Name), bytes: &[u8], out: &mut Vec<Action>) {
        let resource = self.resources.values_mut().find(|r| r.is_held_as(names)).ok_or(ReturnCode::ENOENT);
        let result = resource.and_then(|r| r.set_value(bytes));
        reply(out, conn, result.err().map_or(0, |code| code.0));
    }

    pub(crate) fn get_lvb(&self, conn: ConnId, names: (Name, Name), length: u32, out: &mut Vec<Action>) {
        let resource = self.resources.values().find(|r| r.is_held_as(names)).ok_or(ReturnCode::ENOENT);
        let found = resource.and_then(|resource| {
            let content = resource.value.as_ref().ok_or(ReturnCode::EINVAL)?.content.clone()?;
            Ok(match usize::try_from(length) {
                Ok(length) if length > 0 => content.get(..length).map_or(content.clone(), Arc::from),
                _ => content,
            })
        });
        match found {
            Ok(bytes) => out.push(Action::Reply { conn, reply: Reply::Value(bytes) }),
            Err(code) => reply(out, conn, code.0),
        }
    }

    /// A write of the value block failed, and may still land.
    pub(crate) fn value_in_doubt(&mut self, id: ResourceId) {
        if let Some(value) = self.resources.get_mut(&id).and_then(|r| r.value.as_mut()) {
            value.in_doubt = true;
        }
    }

    /// Nothing of a resource may land any more.
    pub(crate) fn value_settled(&mut self, id: ResourceId, out: &mut Vec<Action>) {
        let value = self.resources.get_mut(&id).and_then(|r| r.value.as_mut());
        if value.is_some_and(|value| std::mem::take(&mut value.in_doubt)) {
            self.value_written(id, true, out);
        }
    }

    /// A write of the value block succeeded, or, for a release, failed with nothing outstanding.
    pub(crate) fn value_written(&mut self, id: ResourceId, failed: bool, out: &mut Vec<Action>) {
        let Some(resource) = self.resources.get_mut(&id) else { return };
        let Some(value) = resource.value.as_mut().filter(|v| v.dirty) else { return };
        if !failed {
            value.dirty = false;
            return;
        }
        value.failures += 1;
        if value.failures >= WRITES_MAX {
            value.dirty = false;
            let text = format!(
                "the value block of {}:{} is LOST: {WRITES_MAX} writes of it failed, the lease is given up without it",
                resource.spec.lockspace, resource.spec.name
            );
            log(out, Level::Durable, Some(resource.ls), text);
        }
    }
}
