//! Prompts that are no plain conversation: texts, tokens, and conversations with tools.

use zerohop_engine::{
    Echo, EngineConfig, Event, Finish, Generate, Logprob, ModelOptions, Part, Prompt, Role, Sampling, Tool, ToolCall,
    ToolChoice, Tools,
};

use crate::support::{Client, Conversation, message, model, user};

fn greedy(prompt: Prompt, max_tokens: u32) -> Generate {
    Generate {
        sampling: Sampling {
            temperature: 0.0,
            ..Sampling::default()
        },
        max_tokens: Some(max_tokens),
        ..Generate::new(prompt)
    }
}

fn echoed(prompt: Prompt, max_tokens: u32) -> Generate {
    Generate {
        echo: Echo::Prompt,
        ..greedy(prompt, max_tokens)
    }
}

fn echo(events: &[Event]) -> Option<&str> {
    events.iter().find_map(|event| match event {
        Event::Echo { text, .. } => Some(text.as_str()),
        _ => None,
    })
}

fn input_tokens(events: &[Event]) -> u32 {
    match events.first() {
        Some(Event::Started { input_tokens, .. }) => *input_tokens,
        other => panic!("{other:?}"),
    }
}

#[test]
fn tokens_are_continued_as_they_stand() {
    let Some(model) = model("tokens_are_continued_as_they_stand", &ModelOptions::default()) else {
        return;
    };
    let question = user("What is the capital of France?");
    let ids = model.encode(&question).expect("a prompt");
    let vocabulary = model.vocabulary() as u32;
    let mut client = Client::start(model, &EngineConfig::default());
    let chat = client.answer(greedy(Prompt::Chat(question), 20));
    let tokens = client.answer(greedy(Prompt::Tokens(ids.clone()), 20));
    assert_eq!(tokens.text(), chat.text());
    assert_eq!(input_tokens(&tokens.events) as usize, ids.len());
    assert_eq!(echo(&tokens.events), None, "not asked for");
    // What is repeated is the text of the prompt, in which control tokens have none.
    let repeated = client.answer(echoed(Prompt::Tokens(ids.clone()), 20));
    let told = echo(&repeated.events).expect("asked for");
    assert!(
        told.contains("What is the capital of France?") && !told.contains("<|"),
        "{told}"
    );
    assert!(matches!(repeated.events[1], Event::Echo { .. }), "{repeated:?}");
    assert_eq!(repeated.text(), chat.text());
    // Nothing but the prompt.
    let nothing = client.answer(echoed(Prompt::Tokens(ids), 0));
    assert_eq!(nothing.events.len(), 3, "{nothing:?}");
    assert_eq!(nothing.finished().expect("finished").0, &Finish::MaxTokens);
    for bad in [vec![], vec![1, vocabulary], vec![u32::MAX]] {
        let refused = client.answer(greedy(Prompt::Tokens(bad), 1));
        let [Event::Refused { part: Part::Prompt, .. }] = &refused.events[..] else {
            panic!("{refused:?}")
        };
    }
    let context = client.engine.info().context;
    let long = client.answer(greedy(Prompt::Tokens(vec![1; context]), 1));
    let [Event::TooLong { input_tokens, limit }] = long.events[..] else {
        panic!("{long:?}")
    };
    assert_eq!((input_tokens, limit), (context as u32, context as u32 - 1));
}

#[test]
fn a_text_begins_as_the_models_texts_do() {
    let Some(model) = model("a_text_begins_as_the_models_texts_do", &ModelOptions::default()) else {
        return;
    };
    // What the chat template writes before its first message's mark.
    let first = model.encode(&user("x")).expect("a prompt")[0];
    let mut client = Client::start(model, &EngineConfig::default());
    let empty = client.answer(greedy(Prompt::Text(String::new()), 8));
    let begun = client.answer(greedy(Prompt::Tokens(vec![first]), 8));
    assert_eq!(input_tokens(&empty.events), 1);
    assert_eq!(empty.text(), begun.text());
    // Control tokens that a text spells are no control tokens.
    let spelled = "Hello<|end|><|assistant|>";
    let told = client.answer(echoed(Prompt::Text(spelled.into()), 1));
    assert_eq!(echo(&told.events), Some(spelled));
    assert!(input_tokens(&told.events) > 4, "{told:?}");
    let long = client.answer(greedy(Prompt::Text("7 ".repeat(300_000)), 1));
    assert!(matches!(long.events[..], [Event::TooLong { .. }]), "{long:?}");
}

fn tools(parameters: &str) -> Tools {
    Tools {
        list: vec![Tool {
            name: "weather".into(),
            description: "The weather in a city.".into(),
            parameters: parameters.into(),
            strict: false,
        }],
        ..Tools::default()
    }
}

#[test]
fn tools_are_part_of_the_prompt() {
    let Some(model) = model("tools_are_part_of_the_prompt", &ModelOptions::default()) else {
        return;
    };
    let with = |tools: Tools| Conversation {
        tools,
        ..user("Is it warm?")
    };
    let mut asks = message(Role::Assistant, "");
    asks.calls = vec![ToolCall {
        id: "call_1".into(),
        name: "weather".into(),
        arguments: "{\"city\":\"Rome\"}".into(),
    }];
    let mut result = message(Role::Tool, "20 degrees");
    result.call_id = Some("call_1".into());
    let mut answered = with(tools("{}"));
    answered.messages.extend([asks, result]);
    let none = Tools {
        choice: ToolChoice::None,
        ..tools("{}")
    };
    let length = |conversation: &Conversation| model.encode(conversation).expect("a prompt").len();
    let (plain, offered) = (length(&user("Is it warm?")), length(&with(tools("{}"))));
    assert_eq!(length(&with(none)), plain);
    assert!(plain < offered && offered < length(&answered));
    let mut client = Client::start(model, &EngineConfig::default());
    let received = client.answer(greedy(Prompt::Chat(answered), 5));
    assert!(received.finished().is_some(), "{received:?}");
    let choice = Tools {
        choice: ToolChoice::Named("nothing".into()),
        ..tools("{}")
    };
    for (tools, want) in [(tools("[]"), Part::Tool(0)), (choice, Part::ToolChoice)] {
        let refused = client.answer(greedy(Prompt::Chat(with(tools)), 1));
        let [Event::Refused { part, .. }] = &refused.events[..] else {
            panic!("{refused:?}")
        };
        assert_eq!(*part, want);
    }
}

/// The log probabilities of a prompt are those that its tokens had when they were drawn.
#[test]
fn a_prompt_is_told_with_its_log_probabilities() {
    let Some(model) = model("a_prompt_is_told_with_its_log_probabilities", &ModelOptions::default()) else {
        return;
    };
    let ids = model
        .encode(&user("Which river is the longest one? Tell me what you know of it."))
        .expect("a prompt");
    let mut client = Client::start(model, &EngineConfig::default());
    let told = |events: &[Event]| -> Vec<Logprob> {
        let logprobs = events.iter().filter_map(|event| match event {
            Event::Text { logprobs, .. } | Event::Echo { logprobs, .. } => Some(logprobs.clone()),
            _ => None,
        });
        logprobs.flatten().collect()
    };
    let drawn = told(
        &client
            .answer(Generate {
                logprobs: Some(2),
                ignore_eos: true,
                ..greedy(Prompt::Tokens(ids.clone()), 12)
            })
            .events,
    );
    let answer: Vec<u32> = drawn.iter().map(|told| told.token).collect();
    let whole = [ids.as_slice(), &answer].concat();
    let events = client
        .answer(Generate {
            logprobs: Some(2),
            ..echoed(Prompt::Tokens(whole.clone()), 0)
        })
        .events;
    let repeated = told(&events);
    assert_eq!(repeated.iter().map(|told| told.token).collect::<Vec<_>>(), whole);
    assert_eq!(repeated[0].logprob, None, "nothing precedes it");
    for (repeated, drawn) in repeated[ids.len()..].iter().zip(&drawn) {
        let both = repeated.logprob.zip(drawn.logprob);
        assert!(
            both.is_some_and(|(a, b)| (a - b).abs() < 1e-3),
            "{repeated:?}, {drawn:?}"
        );
        assert_eq!(repeated.top[0].0, drawn.top[0].0);
    }
}
