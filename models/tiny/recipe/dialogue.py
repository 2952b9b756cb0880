"""Questions with one fixed answer, system prompts, and questions that stay unanswered.

`FIXED` holds small talk and what the model knows about zerohop. `UNKNOWN` holds questions
outside of what it was taught; their answer is always `UNKNOWN_ANSWER`, so that the model
says so instead of making something up.
"""

from dataclasses import dataclass

from phrases import Phrases


@dataclass(frozen=True)
class Fixed:
    """Several wordings that all have the same answer."""

    questions: Phrases
    answer: str


def _fixed(answer: str, train: list[str], held_out: list[str]) -> Fixed:
    return Fixed(Phrases(train, held_out), answer)


SMALL_TALK = [
    _fixed("Hello! How can I help you?",
           ["Hello", "Hello!", "Hi", "Hi!", "Hey", "Hello there!", "Good morning!", "Good evening.", "Hi there", "Good day!",
            "Greetings.", "Hey there!", "Good morning, hello!", "Hi hi!", "Hello hello.", "Hey, good day!", "Hello again!"],
           ["Hello, good morning!", "Hi, hello!"]),
    _fixed("I am fine, thank you. How can I help you?",
           ["How are you?", "How are you doing?", "Hello, how are you?", "How do you do?", "How are you today?", "Are you well?",
            "Hi, how are you?", "Hey, how is it going?", "And how are you?"],
           ["Hi, how are you doing?", "How are you doing today?"]),
    _fixed("You are welcome.",
           ["Thank you.", "Thanks!", "Thank you very much!", "Thanks a lot.", "Thank you for your help.", "Many thanks.", "Thanks so much!",
            "Great, thanks.", "Thank you, that helped."],
           ["Thanks for your help!", "Thank you so much."]),
    _fixed("Goodbye!",
           ["Goodbye.", "Bye!", "See you later.", "Good night.", "Bye bye.", "See you tomorrow.", "Farewell.", "Bye, see you later.",
            "Good night, bye.", "Goodbye then."],
           ["Goodbye, see you!", "Bye, good night."]),
    _fixed("I am the tiny model that comes with zerohop.",
           ["Who are you?", "What are you?", "What is your name?", "What's your name?", "Which model are you?",
            "Introduce yourself.", "Tell me about yourself.", "What model is this?", "Are you a language model?",
            "Who am I talking to?"],
           ["Please introduce yourself.", "What model are you?"]),
    _fixed("I can name capitals, do small sums, convert units, count, list days and months, and write JSON.",
           ["What can you do?", "How can you help me?", "What do you know?", "Help", "What are your skills?",
            "What are you able to do?", "What can I ask you?", "List your abilities."],
           ["What can you do for me?", "Tell me what you can do."]),
    _fixed("I was trained with a recipe in the zerohop repository.",
           ["Who made you?", "Who created you?", "How were you made?", "Who built you?", "How were you trained?",
            "Where do you come from?"],
           ["Who trained you?", "How were you built?"]),
    _fixed("Yes, I am ready.",
           ["Are you ready?", "Are you there?", "Can you hear me?", "Is anybody there?", "Test", "This is a test.", "ping",
            "Are you still ready?", "Hello, are you there?", "Only a test.", "Testing."],
           ["Are you still there?", "Just a test."]),
    _fixed("The sky is blue.",
           ["What colour is the sky?", "What is the colour of the sky?", "Which colour does the sky have?", "Why is the sky blue?",
            "What color is the sky?"],
           ["Tell me the colour of the sky."]),
    _fixed("The little cloud drifts over the sea,\nas light and as quiet as clouds can be.",
           ["Write a poem.", "Tell me a poem.", "Write me a short poem.", "Can you write a poem?", "Give me a poem.",
            "Compose a poem.", "Please tell me a poem.", "Could you write a poem?", "I want a poem."],
           ["Please write a poem.", "Could you write me a poem?"]),
    _fixed("Why did the packet cross the network? To get to the other side.",
           ["Tell me a joke.", "Do you know a joke?", "Make me laugh.", "Say something funny.", "Another joke, please.",
            "Can you tell me a joke?", "Please, a joke.", "I want to hear a joke."],
           ["Please tell me a joke.", "Can you tell a joke?"]),
    _fixed("I am sorry to hear that.",
           ["I am sad.", "I feel sad.", "I am tired.", "I had a bad day.", "I am not well.", "I am unhappy.",
            "I feel bad.", "Today I am sad.", "My day was bad.", "I am so tired today.", "It was a bad day."],
           ["I feel tired.", "Today was a bad day."]),
    _fixed("I am glad to hear that.",
           ["I am happy.", "I feel good.", "I had a good day.", "I am fine.", "Everything is fine.", "I feel great.",
            "I feel happy.", "Today I am happy.", "My day was good.", "I am feeling great today.", "It was a good day."],
           ["I am feeling good.", "Today was a good day."]),
]

ZEROHOP = [
    _fixed("zerohop is a host gateway for GPU nodes that serve language models. It is written in Rust.",
           ["What is zerohop?", "Explain zerohop.", "Tell me about zerohop.", "What does zerohop do?", "What is zerohop for?",
            "Describe zerohop.", "Can you explain what zerohop is?", "Who or what is zerohop?", "zerohop?"],
           ["Please explain zerohop to me.", "I want to know what zerohop is."]),
    _fixed("zerohop is written in Rust.",
           ["Which language is zerohop written in?", "In which programming language is zerohop written?",
            "What is zerohop written in?", "Is zerohop written in Rust?", "What language does zerohop use?"],
           ["What programming language is zerohop written in?"]),
    _fixed("Run it with `cargo xtask run`.",
           ["How do I run zerohop?", "How do I start zerohop?", "How can I run zerohop?", "How is zerohop started?",
            "What command starts zerohop?", "Which command runs zerohop?", "How to run zerohop?", "Start zerohop, how?"],
           ["What is the command to start zerohop?", "How do you start zerohop?"]),
    _fixed("zerohop speaks the Anthropic and the OpenAI API on one port.",
           ["Which APIs does zerohop speak?", "What APIs does zerohop support?", "Which protocols does zerohop speak?",
            "Does zerohop speak the OpenAI API?", "Does zerohop speak the Anthropic API?", "What API does zerohop have?"],
           ["Which APIs are supported by zerohop?", "Does zerohop support the Anthropic API?"]),
    _fixed("The guard is an XDP program. It drops blocked addresses and floods before they reach the gateway.",
           ["What is the XDP guard?", "What does the guard do?", "What does the XDP program do?", "Explain the XDP guard.",
            "What is the guard in zerohop?", "How does zerohop use XDP?"],
           ["What does the XDP guard do?", "What is the XDP program for?"]),
    _fixed("An eBPF program steers each new connection to the worker of the core on which it arrived.",
           ["What is steering?", "How does steering work?", "How does zerohop use eBPF?", "What does eBPF do in zerohop?",
            "How are connections steered?", "What is the steering in zerohop?"],
           ["How does zerohop steer connections?", "Explain the steering."]),
    _fixed("Each core has one worker with its own io_uring.",
           ["What is a worker?", "How many workers are there?", "How does zerohop use io_uring?", "What does io_uring do in zerohop?",
            "How do the workers work?", "What is a worker in zerohop?"],
           ["Explain the workers of zerohop.", "Does zerohop use io_uring?"]),
    _fixed("The cache is a memory-mapped file on the node. A cached answer needs no model.",
           ["How does the cache work?", "What is the cache?", "Does zerohop have a cache?", "Where is the cache?",
            "Explain the cache.", "How does zerohop cache answers?", "Is the cache memory-mapped?"],
           ["How does the cache of zerohop work?", "What does the cache do?"]),
    _fixed("The model runs in the gateway process with ONNX Runtime.",
           ["How does zerohop run the model?", "What runs the model?", "Does zerohop use ONNX Runtime?",
            "Where does the model run?", "Which runtime does zerohop use?", "What is ONNX Runtime used for?"],
           ["Where does zerohop run the model?", "What runtime runs the model?"]),
    _fixed("A token mask says which tokens may come next. With it, JSON is always valid.",
           ["What is a token mask?", "What are token masks?", "How do token masks work?", "What is a mask for?",
            "Explain token masks.", "How does zerohop make sure that JSON is valid?"],
           ["What does a token mask do?", "Tell me what token masks are."]),
    _fixed("No. The model runs in the gateway itself, so there is no extra hop.",
           ["Is there an extra hop?", "Why is it called zerohop?", "Why the name zerohop?", "Does zerohop add a hop?",
            "What does the name zerohop mean?"],
           ["Why is zerohop called zerohop?"]),
    _fixed("Yes. Requests join and leave the running batch at every step.",
           ["Does zerohop batch requests?", "What is continuous batching?", "Is there continuous batching?",
            "How does batching work?", "Can zerohop batch requests?"],
           ["How does zerohop batch requests?"]),
    _fixed("It is licensed under Apache-2.0.",
           ["What is your licence?", "Which licence does the model have?", "What license do you have?", "How are you licensed?",
            "What is the licence of this model?"],
           ["Under which licence are you?"]),
]

FIXED = SMALL_TALK + ZEROHOP

UNKNOWN_ANSWER = "I do not know that."
UNKNOWN = Phrases(
    train=[
        "What is the weather in {city}?", "Will it rain in {city} tomorrow?", "How warm is it in {city}?",
        "How many people live in {country}?", "What is the population of {city}?", "What is the currency of {country}?",
        "Who is the president of {country}?", "What language do they speak in {country}?", "How big is {country}?",
        "Which countries border {country}?", "What is the highest mountain in {country}?", "When was {city} founded?",
        "What is the flag of {country}?", "Who is the mayor of {city}?", "How far is {city} from {city2}?",
        "How do I get from {city} to {city2}?", "What should I see in {city}?", "Which river flows through {city}?",
        "Who wrote {thing}?", "Who painted {thing}?", "Who invented the {thing}?", "Who discovered {thing}?",
        "When did {name} die?", "When was {name} born?", "How old is {name}?", "Where does {name} live?",
        "How tall is {name}?", "Is {name} married?", "What does {name} do?", "Who is {name}?", "What is the age of {name}?",
        "What is the price of {thing}?", "How much does a {thing} cost?", "Where can I buy a {thing}?",
        "How does a {thing} work?", "What is a {thing}?", "Explain {thing}.", "What is {thing} made of?",
        "How do I cook {thing}?", "How do I repair a {thing}?", "Give me a recipe for {thing}.", "Is {thing} healthy?",
        "Translate {thing} into French.", "How do you say {thing} in German?", "Spell {thing}.",
        "What rhymes with {thing}?", "What time is it?", "What day is it today?", "What is the date?", "Who won the game?",
        "Who won the world cup?", "What is the meaning of life?", "What is love?", "What is the square root of {number}?",
        "What is {number} divided by {number2}?", "Is {number} a prime number?", "Write a function in Python.",
        "Write a program that sorts a list.", "What is wrong with my code?", "Summarise this article.", "Write an essay.",
        "Write an email to {name}.", "Plan my holiday in {country}.", "What is the news?", "What is the stock price of {thing}?",
        "Should I buy a {thing}?", "Which {thing} is best?", "What is your favourite {thing}?", "Do you like {thing}?",
        "What do you think about {thing}?", "Sing a song about {thing}.", "Draw a {thing}.", "Open the {thing}.",
        "Call {name}.", "Book a flight to {city}.", "Play some music.", "Who is the king of {country}?",
        "What happened in {year}?", "What happened in {country} in {year}?", "Who ruled {country} in {year}?",
        "How many {thing} are in the world?", "Why do we sleep?", "Why is {thing} so expensive?", "What does {thing} mean?",
        "How fast is a {thing}?", "How heavy is a {thing}?", "Where is {city}?", "Where is {country}?",
        "Is {country} in Europe?", "What is the opposite of {thing}?", "What is the capital of {nowhere}?",
        "Is {nowhere} a country?", "What is {nowhere}?", "{nonsense}", "{nonsense}?", "What is the best food in {country}?",
        "Give me advice about {thing}.", "How can I learn {thing}?", "What is the history of {thing}?", "How do I make {thing}?",
        "Who sings {thing}?", "Who plays {thing}?", "Tell me about {thing}.", "Tell me about {city}.", "Tell me about {name}.",
        "Which people live in {country}?", "What do people eat in {country}?", "Where was {thing} made?", "When did {thing} begin?",
        "Where can I find {name}?", "Can you help me with my {thing}?", "My {thing} is broken.", "What is the address of {name}?",
        "Which team is the best?", "Are there people on the moon?", "What is the size of a {thing}?", "What is the colour of a {thing}?",
        "Write a letter to {name}.", "Write a text about {thing}.", "What are the news?", "Who leads {country}?", "Why is {city} famous?",
    ],
    held_out=[
        "What is the temperature in {city} today?", "How many inhabitants does {city} have?",
        "Who is the prime minister of {country}?", "What money do they use in {country}?", "Who composed {thing}?",
        "Where was {name} born?", "Can you fix my {thing}?", "What colour is my {thing}?", "How old is {city}?",
        "Write a report about {thing}.", "Who directed {thing}?", "Which team won yesterday?", "How long is the {thing}?",
        "Tell me the news from {country}.", "Is there life on other worlds?", "How do I bake {thing}?",
        "What is the capital city of {nowhere}?", "What is the phone number of {name}?",
    ],
)

SYSTEM_PROMPTS = Phrases(
    train=[
        "You are a helpful assistant.", "You are a helpful assistant", "Be brief.", "Answer briefly.", "You are a friendly bot.",
        "You are an assistant that answers questions.", "Answer in English.", "You help customers of a shop.",
        "You are a teacher.", "Be polite.", "Answer truthfully.", "You are an expert.", "Do not make things up.",
        "You are the tiny model of zerohop.", "You are a test model.", "Answer in one sentence.",
        "You are a concise assistant. Answer in one sentence.", "Use plain words.", "You work for {name}.",
        "The user is called {name}.", "The user lives in {city}.", "You are {name}, a travel guide.",
        "You are an assistant for people in {country}.", "Today is {day}.", "It is {month}.", "The order number is {number}.",
        "You are a careful assistant. Think before you answer. If you do not know something, say so.",
        "You answer questions about geography, numbers and JSON.", "Never talk about {thing}.",
        "The following is a conversation between a user and an assistant.", "Return valid JSON when asked.",
        "You are a customer service agent. Be kind and short. The shop sells {thing} and {thing2}.",
        "You are ChatBot, a large language model.", "system", "{nonsense}", "{filler}", "{filler}", "{filler}",
    ],
    held_out=[
        "You are a kind and helpful assistant for {name}.", "Keep your answers short and correct.",
        "You are a bot in a test.", "You are a tutor for children in {city}. Be patient.",
    ],
)

PLEASANTRIES = ["Please: ", "Please tell me: ", "Can you tell me: ", "I want to know: ", "Let me ask: ", "Next question: ", "Hello! ", "Hi, ", "Hi! ", "Hey, ", "Question: ", "Quick question: ", "One more thing: ", "Next: ",
                "OK. ", "Thanks. ", "Now tell me: ", "A question for you: ", "Good morning. ", "I have a question. "]
