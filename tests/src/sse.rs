//! Server-sent events, as far as the two APIs use them.
//!
//! Invariant: what is not an event, a comment or an empty line is a panic: a test wants to know.

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// After `event:`; empty if there was none.
    pub name: String,
    /// After `data:`.
    pub data: String,
}

impl Event {
    /// Its data as JSON.
    ///
    /// # Panics
    /// If it is none.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.data).unwrap_or_else(|error| panic!("{error} in {:?}", self.data))
    }
}

/// The text that an event adds to the answer, in whichever dialect it is written; `None` if it adds none.
#[must_use]
pub fn delta(event: &Event) -> Option<String> {
    if event.data == "[DONE]" {
        return None;
    }
    let json = event.json();
    let text = json
        .pointer("/delta/text")
        .or_else(|| json.pointer("/choices/0/delta/content"))
        .or_else(|| json.pointer("/choices/0/text"));
    text?.as_str().map(String::from)
}

/// Cuts a stream of bytes into events.
#[derive(Debug, Default)]
pub struct Parser {
    pending: Vec<u8>,
}

impl Parser {
    /// Takes more bytes; gives the events that are complete.
    ///
    /// # Panics
    /// If the bytes are no events.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Event> {
        self.pending.extend_from_slice(bytes);
        let mut events = Vec::new();
        while let Some(end) = self.pending.windows(2).position(|pair| pair == b"\n\n") {
            let block: Vec<u8> = self.pending.drain(..end + 2).collect();
            let block = String::from_utf8(block).unwrap_or_else(|error| panic!("an event is not UTF-8: {error}"));
            events.extend(parse(&block));
        }
        events
    }

    /// Whether nothing is left over.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }
}

/// All events of a complete body.
///
/// # Panics
/// If the bytes are no events.
#[must_use]
pub fn events(body: &[u8]) -> Vec<Event> {
    let mut parser = Parser::default();
    let events = parser.feed(body);
    assert!(
        parser.is_empty(),
        "a stream ends inside an event: {:?}",
        String::from_utf8_lossy(body)
    );
    events
}

fn parse(block: &str) -> Option<Event> {
    let mut event = Event {
        name: String::new(),
        data: String::new(),
    };
    for line in block.lines().filter(|line| !line.is_empty() && !line.starts_with(':')) {
        match line.split_once(": ") {
            Some(("event", name)) => name.clone_into(&mut event.name),
            Some(("data", data)) => data.clone_into(&mut event.data),
            _ => panic!("not a line of an event: {line:?}"),
        }
    }
    (!event.data.is_empty() || !event.name.is_empty()).then_some(event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_whole_however_the_bytes_are_cut() {
        let stream = b"event: ping\ndata: {\"a\":1}\n\n: keep-alive\n\ndata: [DONE]\n\n";
        let expected = [("ping", "{\"a\":1}"), ("", "[DONE]")];
        for size in 1..stream.len() {
            let mut parser = Parser::default();
            let events: Vec<Event> = stream.chunks(size).flat_map(|bytes| parser.feed(bytes)).collect();
            let found: Vec<_> = events
                .iter()
                .map(|event| (event.name.as_str(), event.data.as_str()))
                .collect();
            assert_eq!(found, expected, "in chunks of {size}");
            assert!(parser.is_empty());
        }
    }
}
