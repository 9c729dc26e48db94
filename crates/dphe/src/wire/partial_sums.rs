//! Partial sums as bytes, for replicas of the aggregator that share a database. They contain neither the users nor the
//! noise of the updates in them.

use dphe_paillier::{RunningSums, Threads};

use super::codec::{Reader, Writer};
use crate::scheme::sealed::ciphertext_bytes;
use crate::{Collecting, Error, Round};

impl Collecting {
    /// Returns the sums as bytes, for other replicas to continue with.
    pub fn to_partial_sum(&self, threads: Threads) -> Vec<u8> {
        let mut out = Writer::new();
        out.put(&self.round());
        for sums in [&self.positions, &self.packed] {
            let occupied = sums.occupied();
            out.u32(occupied.len() as u32);
            for position in occupied {
                out.u32(position);
                out.u32(sums.terms(position));
            }
            out.bytes(&sums.encode(threads));
        }
        out.into_bytes()
    }

    /// Adds the sums that [`Collecting::to_partial_sum`] wrote. Their users are not counted: call
    /// [`Collecting::add_user`] for each of them, before or after.
    ///
    /// # Errors
    /// [`Error::Storage`] if they are damaged or belong to another round. The sums cannot be used then.
    pub fn add_partial_sum(&mut self, bytes: &[u8], threads: Threads) -> Result<(), Error> {
        let damaged = |_| Error::Storage { reason: "a partial sum cannot be read" };
        let other = |_| Error::Storage { reason: "a partial sum belongs to another task" };
        let mut input = Reader::new(bytes);
        if input.get::<Round>().map_err(damaged)? != self.round() {
            return Err(Error::Storage { reason: "a partial sum belongs to another round" });
        }
        let (key, width) = (&self.keys.encryption, ciphertext_bytes(&self.keys.task));
        for sums in [&mut self.positions, &mut self.packed] {
            let (count, positions) = (input.u32().map_err(damaged)? as usize, sums.positions());
            if count > positions {
                return Err(Error::Storage { reason: "a partial sum has too many positions" });
            }
            let (mut occupied, mut terms) = (Vec::with_capacity(count), Vec::with_capacity(count));
            for _ in 0..count {
                occupied.push(input.u32().map_err(damaged)?);
                terms.push(input.u32().map_err(damaged)?);
            }
            let wire = input.take(count * width).map_err(damaged)?;
            let batch = key.read_wire(wire, threads).map_err(other)?;
            let part = RunningSums::restore(key, positions, &occupied, &terms, &batch, threads);
            sums.merge(part.map_err(other)?, threads).map_err(other)?;
        }
        input.finish().map_err(damaged)
    }
}
