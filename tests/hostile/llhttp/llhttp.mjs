// Reads cases from standard input, one hexadecimal line each, and writes what llhttp makes of each, one JSON line each:
// the targets of the requests that it saw to their ends, and how it stopped. The parser is the WebAssembly build that
// undici carries, in its strict mode, which is the default.

import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'

const require = createRequire(import.meta.url)
const wasm = require('undici/lib/llhttp/llhttp-wasm.js')
const { ERROR, TYPE } = require('undici/lib/llhttp/constants.js')

let requests = []
let target = ''
const text = (at, length) => Buffer.from(llhttp.memory.buffer, at, length).toString('latin1')
const env = {
  wasm_on_message_begin: () => { target = ''; return 0 },
  wasm_on_url: (parser, at, length) => { target += text(at, length); return 0 },
  wasm_on_message_complete: () => { requests.push(target); return 0 }
}
for (const name of ['status', 'header_field', 'header_value', 'headers_complete', 'body']) {
  env[`wasm_on_${name}`] = () => 0
}
const llhttp = new WebAssembly.Instance(new WebAssembly.Module(wasm), { env }).exports
llhttp._initialize()

function parse (bytes) {
  requests = []
  const parser = llhttp.llhttp_alloc(TYPE.REQUEST)
  const at = llhttp.malloc(bytes.length)
  new Uint8Array(llhttp.memory.buffer, at, bytes.length).set(bytes)
  let code = llhttp.llhttp_execute(parser, at, bytes.length)
  let tunnel = false
  while (code === ERROR.PAUSED_UPGRADE) {
    // An offer to upgrade that nobody takes up is passed over, as servers do. After CONNECT there is no more HTTP.
    tunnel = llhttp.llhttp_get_method(parser) === 5
    if (tunnel) break
    const behind = llhttp.llhttp_get_error_pos(parser)
    llhttp.llhttp_resume_after_upgrade(parser)
    code = llhttp.llhttp_execute(parser, behind, at + bytes.length - behind)
  }
  const name = Object.keys(ERROR).find(name => ERROR[name] === code)
  llhttp.free(at)
  llhttp.llhttp_free(parser)
  return { requests, stopped: tunnel ? 'TUNNEL' : name }
}

for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(parse(Buffer.from(line, 'hex'))))
}
