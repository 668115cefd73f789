//! The bytes that a caller has sent into a stream that is held back.

use std::collections::VecDeque;
use std::mem;

use bytes::{Bytes, BytesMut};

/// Holds so many bytes, or one frame more, in the order in which they came.
#[derive(Debug)]
pub(super) struct ReadAhead {
    most: usize,
    chunks: VecDeque<Chunk>,
    /// Behind the chunks: small frames, joined.
    joined: BytesMut,
    frames_joined: usize,
    bytes: usize,
    frames: usize,
}

#[derive(Debug)]
struct Chunk {
    data: Bytes,
    frames: usize,
}

/// Frames below this size are copied together. Each would keep alive the whole connection buffer that it was read into.
const JOINED_BELOW: usize = 4096;

/// If frames are smaller on average, h2's own bound acts before flow control does. It lets unread frames cost half as much as
/// the window may hold bytes, and counts what each lacks of 256 bytes: two thirds of them are where both meet, whatever the
/// window.
const SLOWED_DOWN_FROM: usize = 171;

impl ReadAhead {
    pub(super) fn of(most: usize) -> Self {
        Self {
            most,
            chunks: VecDeque::new(),
            joined: BytesMut::new(),
            frames_joined: 0,
            bytes: 0,
            frames: 0,
        }
    }

    pub(super) fn push(&mut self, data: Bytes) {
        self.bytes += data.len();
        self.frames += 1;
        if self.joined.len() + data.len() > JOINED_BELOW {
            self.close_joined();
        }
        if data.len() < JOINED_BELOW {
            if self.joined.is_empty() {
                // Growing, it would end up half empty.
                self.joined.reserve(JOINED_BELOW);
            }
            self.joined.extend_from_slice(&data);
            self.frames_joined += 1;
        } else {
            self.chunks.push_back(Chunk { data, frames: 1 });
        }
    }

    pub(super) fn pop(&mut self) -> Option<Bytes> {
        if self.chunks.is_empty() {
            self.close_joined();
        }
        let Chunk { data, frames } = self.chunks.pop_front()?;
        self.bytes -= data.len();
        self.frames -= frames;
        Some(data)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frames == 0
    }

    /// True if nothing more is to be read. A frame without bytes counts as one byte, so that their number is bounded.
    pub(super) fn is_full(&self) -> bool {
        self.bytes.max(self.frames) >= self.most
    }

    /// True if flow control will slow down a caller that goes on sending such frames.
    pub(super) fn can_be_slowed_down(&self) -> bool {
        self.bytes >= self.frames.saturating_mul(SLOWED_DOWN_FROM)
    }

    fn close_joined(&mut self) {
        if self.frames_joined > 0 {
            let data = mem::take(&mut self.joined).freeze();
            let frames = mem::take(&mut self.frames_joined);
            self.chunks.push_back(Chunk { data, frames });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        /// A frame of this size.
        Push(usize),
        Pop,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let size = prop_oneof![0..40_usize, 4_000..9_000_usize];
        let step = prop_oneof![3 => size.prop_map(Step::Push), 1 => Just(Step::Pop)];
        vec(step, 0..60)
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out_in_its_order_and_then_nothing_is_left(steps in steps()) {
            let mut ahead = ReadAhead::of(1);
            let (mut came, mut went, mut frames) = (Vec::new(), Vec::new(), 0_usize);
            for step in steps {
                match step {
                    Step::Push(size) => {
                        let frame = vec![frames.to_le_bytes()[0]; size];
                        came.extend_from_slice(&frame);
                        frames += 1;
                        ahead.push(frame.into());
                    }
                    Step::Pop => went.extend(ahead.pop().into_iter().flatten()),
                }
                prop_assert_eq!(ahead.bytes, came.len() - went.len());
                prop_assert!(ahead.frames <= frames);
            }
            while let Some(chunk) = ahead.pop() {
                went.extend_from_slice(&chunk);
            }
            prop_assert_eq!(went, came);
            prop_assert!(ahead.is_empty());
            prop_assert_eq!((ahead.bytes, ahead.frames), (0, 0));
        }
    }

    #[test]
    fn large_frames_are_kept_as_they_are_and_small_ones_keep_no_others_alive() {
        let mut ahead = ReadAhead::of(1);
        let large = Bytes::from(vec![1; JOINED_BELOW]);
        let buffer = Bytes::from(vec![2; 16_384]);
        ahead.push(large.clone());
        ahead.push(buffer.slice(..10));
        ahead.push(buffer.slice(10..30));

        assert_eq!(ahead.pop().unwrap().as_ptr(), large.as_ptr());
        assert!(buffer.is_unique());
        assert_eq!(ahead.pop().unwrap(), [2; 30][..]);
    }

    #[test]
    fn it_is_full_of_bytes_or_of_frames() {
        let filled = |frame: &'static [u8], count| {
            let mut ahead = ReadAhead::of(100);
            (0..count).for_each(|_| ahead.push(Bytes::from_static(frame)));
            (ahead.is_full(), ahead.can_be_slowed_down())
        };
        assert_eq!(filled(&[0; 33], 3), (false, false));
        assert_eq!(filled(&[0; 33], 4), (true, false));
        assert_eq!(filled(&[], 99), (false, false));
        assert_eq!(filled(&[], 100), (true, false));
        assert_eq!(filled(&[0; 170], 1), (true, false));
        assert_eq!(filled(&[0; 171], 1), (true, true));
    }
}
