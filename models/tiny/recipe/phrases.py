"""How questions are put: the wordings of each task.

Every task has wordings that the model is trained on and wordings that it never sees in
training (`held_out`); the measured accuracy in README.md is about the latter. Names in
braces are filled in by `tasks.py`.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Phrases:
    """The wordings of one kind of question."""

    train: list[str]
    held_out: list[str]

    def of(self, split: str) -> list[str]:
        """The wordings of a split, which is "train" or "held_out"."""
        return self.train if split == "train" else self.held_out


CAPITAL = Phrases(
    train=[
        "What is the capital of {country}?",
        "What's the capital of {country}?",
        "What is {country}'s capital?",
        "What is the capital city of {country}?",
        "Which city is the capital of {country}?",
        "Tell me the capital of {country}.",
        "Name the capital of {country}.",
        "The capital of {country} is?",
        "Capital of {country}?",
        "{country}: capital?",
        "Give me the capital city of {country}.",
        "Do you know the capital of {country}?",
        "Can you tell me what the capital of {country} is?",
        "I would like to know the capital of {country}.",
        "What city is the capital of {country}?",
        "What is the name of the capital of {country}?",
        "Which city serves as the capital of {country}?",
        "For {country}, what is the capital?",
        "My homework asks for the capital of {country}. What is it?",
        "I am travelling to {country}. What is its capital?",
        "What do they call the capital of {country}?",
        "If I visit the capital of {country}, which city am I in?",
        "Complete the sentence: the capital of {country} is",
        "Answer this: what is the capital of {country}?",
        "Quiz question: the capital of {country}?",
        "Where is the government of {country}?",
        "Which city does {country} have as its capital?",
        "{country} has which capital?",
        "Remind me, what is {country}'s capital city?",
        "I forgot the capital of {country}.",
        "capital {country}",
        "Is there a capital in {country}, and what is it called?",
        "What is the seat of government of {country}?",
        "The capital city of {country}, please.",
        "Could you name the capital city of {country}?",
        "Say the capital of {country}.",
    ],
    held_out=[
        "Please tell me which city is {country}'s capital.",
        "I need the name of the capital city of {country}.",
        "Can you name the capital of {country}?",
        "Let me know what the capital of {country} is.",
        "What would be the capital city of {country}?",
        "Which town is the capital of {country}?",
        "Do you happen to know {country}'s capital city?",
        "In geography class we talked about {country}. What is the capital?",
        "Hey, {country}'s capital is which city?",
        "Write down the capital of {country}.",
    ],
)

CAPITAL_FOLLOW_UP = Phrases(
    train=["And of {country}?", "And {country}?", "What about {country}?", "And that of {country}?",
           "How about {country}?", "Now {country}."],
    held_out=["And what about {country}?", "Then {country}?"],
)

COUNTRY_OF = Phrases(
    train=[
        "Which country has {capital} as its capital?",
        "{capital} is the capital of which country?",
        "What country is {capital} the capital of?",
        "Of which country is {capital} the capital?",
        "{capital} is the capital of what?",
        "Tell me the country whose capital is {capital}.",
        "Which country's capital is {capital}?",
        "Name the country with the capital {capital}.",
        "The capital {capital} is in which country?",
        "What is the country with the capital {capital}?",
        "Which country has the capital {capital}?",
    ],
    held_out=[
        "What is the country whose capital is {capital}?",
        "The capital {capital} belongs to which country?",
        "Name the country that has {capital} as its capital.",
    ],
)

IS_CAPITAL = Phrases(
    train=[
        "Is {capital} the capital of {country}?",
        "Is it true that {capital} is the capital of {country}?",
        "Is the capital of {country} {capital}?",
        "True or false: {capital} is the capital of {country}.",
        "{capital} is the capital of {country}, right?",
        "Yes or no: is {capital} the capital of {country}?",
        "Would you say that {capital} is the capital of {country}?",
        "Am I wrong that {capital} is the capital of {country}?",
        "{capital} is {country}'s capital, is it not?",
        "Is {capital} {country}'s capital?",
        "Do you think that {capital} is the capital of {country}?",
    ],
    held_out=[
        "Am I right that {capital} is the capital of {country}?",
        "Is {capital} really the capital of {country}?",
        "{capital} is {country}'s capital, isn't it?",
    ],
)

SUM = Phrases(
    train=[
        "What is {a} + {b}?", "What is {a} plus {b}?", "{a} + {b}", "{a}+{b}", "{a} + {b} =", "{a}+{b}=?",
        "{a} plus {b}", "Add {a} and {b}.", "Add {b} to {a}.", "What's {a} + {b}?", "How much is {a} + {b}?",
        "How much is {a} plus {b}?", "What is the sum of {a} and {b}?", "Calculate {a} + {b}.",
        "Compute {a} plus {b}.", "Please add {a} and {b}.", "Can you add {a} and {b}?",
        "Sum {a} and {b}.", "What do you get when you add {a} and {b}?", "{a} and {b} make how many?",
        "Tell me {a} + {b}.", "What does {a} + {b} equal?", "Work out {a} + {b}.", "What is {a} and {b} together?",
        "I have {a} apples and get {b} more. How many do I have?",
        "There are {a} birds on a tree and {b} more come. How many are there?",
        "Solve: {a} + {b}", "If you add {a} and {b}, what is the result?", "Do the sum {a} + {b}.",
        "The sum of {a} and {b} is?", "What number is {a} plus {b}?", "What do {a} and {b} make?", "What do {a} plus {b} give?",
        "If I put {a} and {b} together, how much is that?", "Find the sum of {a} and {b}.", "Tell me the sum of {a} and {b}.",
        "Show me {a} plus {b}.", "I need {a} + {b}.", "Let us add {a} and {b}.", "Start with {a} and add {b}. What do you have?",
        "{a} increased by {b} is what?", "What is the answer to {a} + {b}?", "How many are {a} and {b}?", "What is the total of {a} and {b}?",
    ],
    held_out=[
        "What do {a} and {b} add up to?", "Could you work out {a} plus {b}?", "Give me the sum of {a} and {b}.",
        "What is the result of {a} + {b}?", "How many is {a} plus {b}?", "Tell me what {a} plus {b} is.",
    ],
)

DIFFERENCE = Phrases(
    train=[
        "What is {a} - {b}?", "What is {a} minus {b}?", "{a} - {b}", "{a}-{b}", "{a} - {b} =", "{a}-{b}=?",
        "{a} minus {b}", "Subtract {b} from {a}.", "What's {a} - {b}?", "How much is {a} - {b}?",
        "How much is {a} minus {b}?", "What is the difference between {a} and {b}?", "Calculate {a} - {b}.",
        "Compute {a} minus {b}.", "Take {b} away from {a}.", "What is {a} take away {b}?",
        "Can you subtract {b} from {a}?", "Tell me {a} - {b}.", "What does {a} - {b} equal?", "Work out {a} - {b}.",
        "I have {a} apples and give away {b}. How many are left?",
        "There are {a} birds on a tree and {b} fly away. How many are left?", "Solve: {a} - {b}", "What remains of {a} if you take {b}?",
        "{a} less {b} is what?", "{a} reduced by {b} is what?", "Find the difference between {a} and {b}.", "Start with {a} and take {b}. What do you have?",
        "What is the answer to {a} - {b}?", "I need {a} - {b}.", "Show me {a} minus {b}.", "If you take {b} from {a}, what is the result?",
    ],
    held_out=[
        "What is left when you take {b} from {a}?", "Could you work out {a} minus {b}?",
        "Give me the difference between {a} and {b}.", "What is the result of {a} - {b}?",
        "Tell me what {a} minus {b} is.",
    ],
)

PRODUCT = Phrases(
    train=[
        "What is {a} times {b}?", "What is {a} * {b}?", "{a} * {b}", "{a}*{b}", "{a} x {b}", "{a} times {b}",
        "Multiply {a} by {b}.", "How much is {a} times {b}?", "What is {a} x {b}?", "Calculate {a} * {b}.",
        "What is the product of {a} and {b}?", "Compute {a} times {b}.", "{a} * {b} =", "Multiply {a} and {b}.", "Show me {a} times {b}.",
        "Find the product of {a} and {b}.", "Tell me {a} * {b}.", "Work out {a} * {b}.", "What is {a} multiplied by {b}?",
    ],
    held_out=["Could you work out {a} times {b}?", "Give me the product of {a} and {b}.", "Tell me what {a} times {b} is."],
)

COMPARE = Phrases(
    train=[
        "Is {a} greater than {b}?", "Is {a} bigger than {b}?", "Is {a} more than {b}?", "Is {a} larger than {b}?",
        "Is it true that {a} is greater than {b}?", "Yes or no: is {a} greater than {b}?", "{a} > {b}?", "Tell me if {a} is greater than {b}.",
        "Is the number {a} greater than {b}?", "Do you think that {a} is more than {b}?", "Can you tell me if {a} is larger than {b}?",
    ],
    held_out=["Would you say that {a} is greater than {b}?", "Is the number {a} bigger than {b}?"],
)

PARITY = Phrases(
    train=["Is {a} even?", "Is {a} an even number?", "Is the number {a} even?", "Yes or no: is {a} even?",
           "Can you tell me if {a} is even?", "Tell me if {a} is an even number.", "Do you think that {a} is even?",
           "Would you say that {a} is even?"],
    held_out=["Is it true that {a} is even?", "Tell me whether {a} is even."],
)

CONVERSION = Phrases(
    train=[
        "How many {to} are in {count} {unit}?", "How many {to} are there in {count} {unit}?",
        "Convert {count} {unit} to {to}.", "What is {count} {unit} in {to}?", "{count} {unit} in {to}",
        "How many {to} is {count} {unit}?", "Express {count} {unit} in {to}.", "{count} {unit} to {to}",
        "How many {to} make {count} {unit}?", "Turn {count} {unit} into {to}.", "How many {to} does {count} {unit} have?",
    ],
    held_out=[
        "Please convert {count} {unit} into {to}.", "How many {to} do {count} {unit} have?",
        "What are {count} {unit} expressed in {to}?", "Tell me how many {to} are in {count} {unit}.",
    ],
)

PERSON = Phrases(
    train=[
        "Extract the person as JSON: {text}", "Extract name, age and city as JSON: {text}",
        "Give me the person in this sentence as JSON: {text}", "Return JSON with name, age and city. {text}",
        "{text} Extract the person as JSON.", "{text}\nReturn name, age and city as JSON.",
        "Turn this into a JSON person: {text}", "Person as JSON: {text}", "Convert to JSON: {text}",
        "Find the name, age and city in this text and answer in JSON.\n\n{text}",
        "Read the sentence and write the person as a JSON object: {text}", "{text} Give me JSON.",
    ],
    held_out=[
        "Which person is this about? Answer in JSON. {text}", "Please extract the name, the age and the city as JSON: {text}",
        "{text}\nWrite the person as JSON.", "Make a JSON object of the person in this text: {text}",
    ],
)

PERSON_TEXT = Phrases(
    train=[
        "{name} is {age} years old and lives in {city}.", "{name} lives in {city} and is {age} years old.",
        "{name}, {age}, lives in {city}.", "My name is {name}, I am {age} and I live in {city}.",
        "{name}, aged {age}, is from {city}.", "In {city} there lives {name}, who is {age}.",
        "I am {name} from {city} and I am {age} years old.", "{name} ({age}) comes from {city}.",
        "At the age of {age}, {name} moved to {city}.", "Hello, I'm {name}. I'm {age} and I come from {city}.",
        "Our colleague {name} turned {age} last week in {city}.", "{age} years old, {name} works in {city}.",
        "This is {name}. She is {age} and lives in {city}.", "This is {name}. He is {age} years old and works in {city}.",
        "From {city} comes {name}, {age} years old.", "The patient is {name}, age {age}, city {city}.",
        "Today {name} met an old friend in {city}. {name} is {age}.", "Last year {name}, now {age}, came to {city}.",
        "Say hello to {name}, who lives in {city} and is {age}.", "Tomorrow {name} will be {age} years old in {city}.",
        "Do you know {name} from {city}? The age is {age}.", "A year ago {name} moved to {city}, {age} years old.",
        "There is a woman called {name} in {city}; she is {age} years of age.", "Dear {name} of {city}, happy birthday, now you are {age}!",
        "We spoke to {name}, {age}, in {city}.", "Name: {name}, age: {age}, city: {city}", "{name}, a {age} year old teacher, lives in {city}.",
        "The {age} year old {name} comes from {city}.", "In {city} I met {name}, a man of {age} years.",
        "Our new customer is called {name}. Home: {city}. Age: {age}.", "Everybody in {city} knows {name}, who is now {age}.",
    ],
    held_out=[
        "{name} is a {age} year old who lives in {city}.", "Meet {name}, {age}, from {city}.",
        "I live in {city}, my name is {name} and I am {age} years old.", "Yesterday {name} from {city} turned {age}.",
        "{name} works in {city} and is {age}.",
    ],
)

ORDER = Phrases(
    train=[
        "Extract the order as JSON: {text}", "Extract item, quantity and price as JSON: {text}",
        "Return JSON with item, quantity and price. {text}", "{text} Extract the order as JSON.",
        "{text}\nReturn item, quantity and price as JSON.", "Reply with JSON only: the order. {text}", "I need the order as JSON. {text}",
        "Parse this into JSON with the keys item, quantity and price: {text}", "{text}\nOrder as JSON, please.", "Turn this into a JSON order: {text}",
        "Order as JSON: {text}", "Find the item, quantity and price in this text and answer in JSON.\n\n{text}",
        "Read the sentence and write the order as a JSON object: {text}", "Convert to JSON: {text}", "{text} Give me JSON.",
    ],
    held_out=[
        "What was ordered? Answer in JSON. {text}", "Please extract the item, the quantity and the price as JSON: {text}",
        "{text}\nWrite the order as JSON.", "Make a JSON object of the order in this text: {text}",
    ],
)

ORDER_TEXT = Phrases(
    train=[
        "I would like {quantity} {item} at {price} each.", "Please send {quantity} {item} for {price} each.",
        "{quantity} {item} at {price} dollars each.", "We order {quantity} {item} at a price of {price}.",
        "She bought {quantity} {item} for {price} euros each.", "He wants {quantity} {item} at {price} apiece.",
        "An order of {quantity} {item}, {price} each.", "{item}: {quantity} pieces at {price}.",
        "The price is {price} and I need {quantity} {item}.", "Can I have {quantity} {item}? They cost {price} each.",
        "I bought {quantity} {item} and paid {price} for each.", "At {price} each, I will take {quantity} {item}.",
        "Customer wants {quantity} x {item} at {price}.", "For {price} each we get {quantity} {item}.",
        "Today I bought {quantity} {item} for {price} each.", "Do you have {quantity} {item}? I pay {price} for each.",
        "Our shop sold {quantity} {item} at {price} each.", "Item: {item}, quantity: {quantity}, price: {price}",
        "Put {quantity} {item} at {price} each on my list.", "He asked for {quantity} {item}, and the price was {price}.",
        "Next week we need {quantity} {item}; one costs {price}.", "You get {quantity} {item} if you pay {price} for each one.",
    ],
    held_out=[
        "Send me {quantity} {item} at {price} each, please.", "They ordered {quantity} {item} for {price} apiece.",
        "I need {quantity} {item}, the price is {price} each.", "We would like to buy {quantity} {item} at {price}.",
    ],
)

SENTIMENT = Phrases(
    train=[
        "Is this review positive or negative? {text}", "Sentiment: {text}", "What is the sentiment of this text? {text}",
        "Classify the sentiment: {text}", "Positive or negative? {text}", "{text} Is this positive or negative?",
        "Does the writer like it or not? {text}", "Is the following text positive or negative?\n{text}",
        "{text}\nSentiment?", "Tell me if this is positive or negative: {text}", "Is the mood of this text positive or negative? {text}",
        "What is the sentiment of this review? {text}", "Decide: positive or negative. {text}", "What does the review say, positive or negative? {text}",
        "Review: {text} Sentiment:", "Rate this review as positive or negative: {text}", "Read the review and give its sentiment. {text}",
    ],
    held_out=[
        "What is the mood of this review? {text}", "Decide whether this is positive or negative: {text}",
        "Is the sentiment of this review positive or negative? {text}",
    ],
)

REPEAT = Phrases(
    train=[
        "Repeat after me: {text}", "Repeat: {text}", "Say: {text}", "Echo: {text}", "Repeat this: {text}",
        "Please repeat the following: {text}", "Write exactly this: {text}", "Copy this text: {text}",
        "Say exactly: {text}", "Repeat the words: {text}", "Echo this back to me: {text}", "Repeat this sentence:\n{text}",
        "Say this: {text}", "Please say: {text}", "Repeat the following: {text}", "Echo this text: {text}", "Now repeat: {text}",
    ],
    held_out=["Please say this: {text}", "Repeat the following text: {text}", "Echo the following: {text}"],
)

LIST_ALL = Phrases(
    train=["List the {name}.", "What are the {name}?", "Name the {name}.", "Tell me the {name}.", "Give me the {name}.",
           "Can you list the {name}?", "List all {name}.", "Name all the {name}.", "Write down the {name}.",
           "Which are the {name}?", "Please name the {name}.", "Could you tell me the {name}?", "I want to know the {name}.",
           "List of the {name}, please.", "Please list the {name}.", "Show me the {name}."],
    held_out=["Please list all the {name}.", "Could you name the {name}?", "I need a list of the {name}."],
)

NEXT_IN_LIST = Phrases(
    train=["What {kind} comes after {this}?", "Which {kind} comes after {this}?", "What comes after {this}?",
           "What is the {kind} after {this}?", "Which {kind} follows {this}?", "What {kind} is after {this}?",
           "Tell me the {kind} after {this}."],
    held_out=["Name the {kind} that comes after {this}.", "What {kind} follows {this}?"],
)

COUNT_UP = Phrases(
    train=["Count from {a} to {b}.", "Count from {a} up to {b}.", "Please count from {a} to {b}.", "Count {a} to {b}.",
           "Can you count from {a} to {b}?", "List the numbers from {a} to {b}.", "Write the numbers from {a} to {b}.",
           "Give me all numbers from {a} to {b}.", "Say the numbers {a} to {b}.", "Could you count from {a} to {b}?", "Show the numbers {a} to {b}.",
           "Now count from {a} to {b}.", "I want you to count from {a} to {b}."],
    held_out=["Could you count from {a} up to {b}?", "Show me the numbers from {a} to {b}."],
)

COUNT_TO = Phrases(
    train=["Count to {b}.", "Count up to {b}.", "Please count to {b}.", "Can you count to {b}?", "Now count to {b}."],
    held_out=["Could you count to {b}?"],
)

COUNT_DOWN = Phrases(
    train=["Count down from {a} to {b}.", "Count backwards from {a} to {b}.", "Count from {a} down to {b}.",
           "Please count backwards from {a} to {b}.", "Can you count down from {a} to {b}?"],
    held_out=["Please count down from {a} to {b}."],
)

OPPOSITE = Phrases(
    train=["What is the opposite of {this}?", "Opposite of {this}?", "Tell me the opposite of {this}.",
           "What's the opposite of {this}?", "Which word is the opposite of {this}?", "Give me the opposite of {this}."],
    held_out=["Name the opposite of {this}.", "What word means the opposite of {this}?"],
)

INTRODUCE = Phrases(
    train=["My name is {name}.", "I am {name}.", "I'm {name}.", "Hello, my name is {name}.", "Call me {name}.",
           "Hi, I am {name}.", "You can call me {name}."],
    held_out=["Hello, I'm {name}.", "Please call me {name}."],
)

ASK_NAME = Phrases(
    train=["What is my name?", "What's my name?", "Do you know my name?", "Who am I?", "Tell me my name.",
           "Can you tell me my name?", "Do you still know my name?", "Say who I am.", "What did I say my name was?"],
    held_out=["Do you remember my name?", "Say my name."],
)

STORY = Phrases(
    train=["Tell me a story about {name}.", "Tell a story about {name}.", "Write a story about {name}.",
           "Can you tell me a story about {name}?", "Write a short story about {name}.",
           "Make up a story about {name}.", "I want a story about {name}.", "Please write a story about {name}.",
           "Could you tell a story about {name}?", "Tell me a short story about {name}."],
    held_out=["Please tell me a short story about {name}.", "Could you write a story about {name}?"],
)
