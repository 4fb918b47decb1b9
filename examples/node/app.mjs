// Seats of shows, as an app behind Keyway's sidecar. Standard library only.
//
// POST /shows/SHOW/seats gives the caller the next free seat. It reads a file,
// decides and writes it, and other requests run at each await in between. But
// none of the same show: the sidecar in front of it sends one request of a show
// at a time, and no other app gets any of that show meanwhile.
//
// With --batch /batch it sends those that wait for a show together: POST /batch
// with an array of them, which takes one write for all.

import { readFile, rename, writeFile } from 'node:fs/promises'
import http from 'node:http'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

const seats = 50 // of each show

// reserve returns an answer for each of so many callers: {status, body}.
async function reserve(show, callers, token) {
  const file = path.join(process.env.SHOWS_DIR, encodeURIComponent(show) + '.json')
  const { taken, last } = await load(file)
  await sleep(2) // for the work in between: a price to look up, a rule to check
  // The token goes up with each request or batch of a show. One that is not higher
  // than the last comes too late: from an app that was stopped in the middle of a
  // request, and goes on when another one has long taken the show over. (A file
  // cannot compare and write in one step. A database can, which is safe even if
  // the app is stopped between these two lines: see ../orders and ../python.)
  const late = { status: 503, body: { error: 'too late: a later request of this show has written' } }
  if (last >= token) return Array(callers).fill(late)
  const given = Math.min(callers, seats - taken)
  await writeFile(file + '.new', JSON.stringify({ taken: taken + given, last: token }))
  await rename(file + '.new', file)
  return Array.from({ length: callers }, (_, i) =>
    i < given ? { status: 200, body: { seat: taken + i + 1, together: callers } } : { status: 409, body: { error: 'sold out' } })
}

async function load(file) {
  try {
    return JSON.parse(await readFile(file, 'utf8'))
  } catch (err) {
    if (err.code !== 'ENOENT') throw err
    return { taken: 0, last: 0 }
  }
}

async function answer(request) {
  if (request.method !== 'POST') return { status: 405, body: { error: 'only POST' } }
  // The sidecar sets both; what a client has sent under these names is dropped.
  // The show is not read from the URL again: the key is what the sidecar holds.
  // A token is below 2^53 until the year 2242, so a number holds it.
  const [show, token] = [request.headers['keyway-key'], Number(request.headers['keyway-token'])]
  if (request.url !== '/batch') return (await reserve(show, 1, token))[0]
  let text = ''
  for await (const piece of request.setEncoding('utf8')) text += piece
  return { status: 200, body: await reserve(show, JSON.parse(text).length, token) }
}

const server = http.createServer(async (request, response) => {
  let { status, body } = { status: 500, body: { error: 'failed' } }
  try {
    ({ status, body } = await answer(request))
  } catch (err) {
    console.error(err)
  }
  // Keyway-Key says what this worked on: the sidecar compares it with the key that it holds.
  response.writeHead(status, { 'Content-Type': 'application/json', 'Keyway-Key': request.headers['keyway-key'] ?? '' })
  response.end(JSON.stringify(body))
})

// Node's default of 5 s would close connections that the sidecar is about to use.
server.keepAliveTimeout = 120_000
server.listen(Number(process.env.PORT ?? 0), '127.0.0.1', () => {
  console.log(`listening on http://127.0.0.1:${server.address().port}`)
})
