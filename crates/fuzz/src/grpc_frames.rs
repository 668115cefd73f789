//! gRPC's frames, cut anywhere.

use tollgate::__frames::{Frames, Piece};

/// The first byte says how to cut the stream behind it. The cut stream has the messages of the whole stream, with as many bytes
/// of each; no byte is taken that was not given.
pub fn grpc_frames(data: &[u8]) {
    let Some((&step, stream)) = data.split_first() else {
        return;
    };
    let whole = read([stream]);
    assert_eq!(read(stream.chunks(usize::from(step).max(1))), whole);
    let total: usize = whole.iter().map(|(_, came)| came).sum();
    assert!(total <= stream.len());
}

/// The stated length of each message, and the number of its bytes that came.
fn read<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<(u32, usize)> {
    let mut frames = Frames::default();
    let mut messages = Vec::new();
    for mut rest in chunks {
        while let Some(piece) = frames.next(rest) {
            assert!(piece.bytes() > 0, "it would go on for ever");
            rest = &rest[piece.bytes()..];
            match piece {
                Piece::Begin { length, .. } => messages.push((length, 0)),
                Piece::Within(bytes) => messages.last_mut().unwrap().1 += bytes,
                Piece::Prefix(_) => assert!(rest.is_empty(), "only the end cuts a prefix"),
            }
        }
    }
    for (stated, came) in &messages {
        assert!(*came as u64 <= u64::from(*stated));
    }
    messages
}
