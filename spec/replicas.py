#!/usr/bin/env python3
"""Reads and fills from a replica (PostgreSQL: a hot standby): which answers are true, and what a session may read afterwards.

A replica receives the log, redoes it in log order, and then moves its replayed position. So a commit is visible there before the replayed
position passes it, and perhaps before it is visible on the primary: visibility there has another order than the log. The change stream
comes from the primary and may be ahead of the replica or behind it.

Routing. A session looks keys up, reads at the primary, or reads at a replica. It has a watermark (hits need applied >= watermark, or an entry
whose fill started after its last read) and a bound of what a replica has shown it: it reads at the primary once everything up to that bound is
delivered and proven visible there. A replica is asked for its replayed position before the query. The position must have reached the session's
watermark and the applied position at the beginning of the look-up (so it has every acknowledged write), or none of the commits in between
may touch the statement's tags.

Fills. A fill at a replica is installed if no delivered commit behind the replayed position that was read before the query touches its tags, once
the stream has passed an upper bound of what the query saw, and nothing up to that bound is unproven.

Promotion. The replica becomes the primary of a new timeline, which forks at its replayed position; what the old primary has behind the
fork is lost. Freshet notices some time later. A second replica follows the old primary, or later the new one.

Checked: FRESH (an entry that could be served reflects all delivered commits that matter to it), RYW (a read by any way reflects the writes
that were acknowledged before it began), MONO (a session never goes backwards, by whatever ways), LOST (an entry of the new timeline shows
nothing that only the old one had). A read of a key shows only commits that touch it; what is seen counts as the state of the whole database.
"""
from collections import namedtuple
from search import Switches, explore, main

class P(Switches):
    part='route'       # reads at replicas ('route') | fills there ('fill') | 'both' | 'promotion'
    # reads at a replica
    lower='before'     # its replayed position is read 'before' the query | 'after' it | None: not asked
    upper='received'   # upper bound of what it has shown: the 'received' position read after the query | 'early': read before it
                       # | 'replayed': the replayed position, after the query | 'log end': that of the primary, read after the answer
    floor='applied'    # it must have reached the watermark and the 'applied' position | the 'watermark' alone
    tags=False         # ... or no commit in between touches the tags
    ring='all'         # the commits in between: 'all' delivered ones | 'pending': those not proven visible on the primary
    reach=True         # the stream must have delivered everything up to the watermark for that
    primary='proven'   # behind a replica, the primary is read once all up to the bound is 'proven' there | 'delivered' | None: at once
    read_end=True      # hits need applied >= read_end, also those of entries that are newer than the session's last read
    acks='wait'        # writes are acknowledged once delivered | 'skipped': at once if no entry depends on them | 'noted': then, with a log end that
                       # replicas must reach
    archive=False      # the replica also redoes log that did not come by streaming
    replicas=1
    touch=((0,),(0,))  # the keys that each writer touches
    look=2
    fills=1
    # fills at a replica
    proof='position'   # candidates: delivered commits behind the replayed position ('position') | PENDING and what came since the registration, unless
                       # behind that position ('pending'), or unless pg_current_snapshot() of the replica shows them ('snapshot')
    newer=False        # such an entry counts as newer than the session's last read if its fill started after it
    hold='proven'      # installed once all up to its bound is 'proven' | once 'delivered' | None: at once
    # promotion
    keep='fork'        # Freshet's switch flushes unless the fork is at or behind the applied position ('fork') | ... the confirmed position ('confirmed')
                       # | 'flush': always | 'always': never
    beyond='drop'      # kept entries whose read_end lies behind the fork: 'drop' | 'keep'
    apart=False        # what is written on the new timeline does not touch the key
    flights='void'     # flights of the old primary: 'void' | 'kept'
    slot='goes on'     # with kept entries, the stream 'goes on' where it was | 'new': begins at the new primary's log end
    floors='kept'      # with kept entries, watermarks are 'kept' | 'dropped'
    timeline='asked'   # of the replica: 'asked' with its position | 'leased': known from before | None
    after='asked'      # whether it is on another timeline now, or promoted: 'asked' behind the query | None

# standbys: (received, visible, replayed) each   ents: (result, read_end, newer) | None
# ses: (look-ups left, phase, seen, watermark, bound)   phase: idle | (name, replica, key, floor, acknowledged, position, result, bound)
St=namedtuple('St','wal vis acked dl pend note sb ents left fill ses bad')
none=frozenset()
show=lambda xs:'{'+','.join(f'W{x}' for x in sorted(xs))+'}'
put=lambda t,i,v:t[:i]+(v,)+t[i+1:]

def wrong(key,touch,seen,acked,res,how):
    of=lambda xs:frozenset(x for x in xs if key in touch[x])
    if not of(acked)<=res: return ('RYW',f'{how} of {key}: {show(res)}, acknowledged before {show(of(acked))}')
    if not of(seen)<=res: return ('MONO',f'{how} of {key}: {show(res)}, saw {show(of(seen))} before')
    return ''

def run(p): return promotion(p) if p.part=='promotion' else routing(p)

def routing(p):
    K=range(1+max(k for t in p.touch for k in t))
    W=range(len(p.touch))
    init=St((),none,none,0,none,0,((0,0,0),)*p.replicas,(None,)*len(K),p.fills,None,(p.look,'idle',none,0,0),'')
    hits=lambda xs,k:[x for x in xs if k in p.touch[x]]
    def check(s):
        if s.bad: return s.bad
        for k in K:
            e=s.ents[k]
            if e and s.dl>=e[1] and not set(hits(s.wal[:s.dl],k))<=e[0]: return ('FRESH',f'entry {k}={show(e[0])}, delivered {show(s.wal[:s.dl])}')
        return None
    def settled(s,bound,how): return how is None or (s.dl>=bound and not (how=='proven' and any(x in s.pend for x in s.wal[:bound])))
    def suits(s,k,floor,at):
        if p.lower is None or at>=floor: return True
        if not p.tags or (p.reach and s.dl<floor): return False
        between=s.wal[at:s.dl]
        return not hits(between if p.ring=='all' else [x for x in between if x in s.pend],k)
    def steps(s):
        out=[]
        def add(lab,**k): out.append((lab,s._replace(**k)))
        for w in W:
            if w not in s.wal: add(f'W{w}: commit record in the log ({len(s.wal)+1})',wal=s.wal+(w,))
            elif w not in s.vis: add(f'W{w}: visible on the primary',vis=s.vis|{w})
            elif w not in s.acked and (w in s.wal[:s.dl] or (p.acks!='wait' and not any(s.ents[k] for k in p.touch[w]))): add(f'W{w}: acknowledged',acked=s.acked|{w},note=len(s.wal) if p.acks=='noted' else 0)
        if s.dl<len(s.wal):
            x=s.wal[s.dl]; f=s.fill
            add(f'stream delivers W{x}',dl=s.dl+1,pend=s.pend|{x},ents=tuple(None if k in p.touch[x] else s.ents[k] for k in K),fill=f and put(f,2,f[2]|{x}))
        if s.pend&s.vis: add('proof from the primary',pend=s.pend-s.vis)
        for i,(rec,seen,redone) in enumerate(s.sb):
            def sb(lab,*t): add(f'replica {i}: '+lab,sb=put(s.sb,i,t))
            if rec<len(s.wal): sb(f'receives up to {rec+1}',rec+1,seen,redone)
            if seen<(len(s.wal) if p.archive else rec) and seen==redone: sb(f'W{s.wal[seen]} is visible',rec,seen+1,redone)
            if redone<seen: sb(f'replayed position {seen}',rec,seen,seen)
        # fills of others, at the primary in one step or at a replica
        f=s.fill
        for k in K:
            if f is None and s.left and s.ents[k] is None:
                if p.part!='route': add(f'fill {k}: registered (pending {show(s.pend)})',fill=('reg',k,s.pend,0,none,0,True),left=s.left-1)
                elif not set(hits(s.pend,k))-s.vis: add(f'fill {k} at the primary: {show(s.vis)}',ents=put(s.ents,k,(s.vis,len(s.wal),True)),left=s.left-1)
        if f is not None:
            ph,k,taints,at,res,end,new=f; rec,seen,redone=s.sb[0]
            def fill(lab,*t,**k2): add(f'fill {k}: '+lab,fill=t and (*t,new) or None,**k2)
            if ph=='reg':
                if p.lower=='before': fill(f'replayed position {redone}','at',k,taints,redone,res,rec)
                else: fill('sent','at',k,taints,0,res,rec)
            elif ph=='at': fill(f'query: {show(s.wal[:seen])}','read',k,taints,at,frozenset(s.wal[:seen]),end)
            elif ph=='read':
                end={'received':rec,'early':end,'replayed':redone,'log end':len(s.wal)}[p.upper]
                fill(f'upper bound {end}','done',k,taints,redone if p.lower=='after' else at,res,end)
            else:
                if p.proof=='position': cand=s.wal[at:s.dl]
                elif p.proof=='pending': cand=[x for x in taints if x not in s.wal[:at]]
                else: cand=()                            # the snapshot of a replica names no running transaction: it seems to show all
                if hits(cand,k): fill(f'dropped, {show(hits(cand,k))} not shown')
                elif settled(s,end,p.hold): fill(f'INSTALL {show(res)}, read_end={end}',ents=put(s.ents,k,(res,end,new and p.newer)))
        out+=session(s)
        return out
    def session(s):
        out=[]
        left,ph,seen,mark,bound=s.ses
        def ses(lab,*t,**k): out.append((lab,s._replace(ses=t,**k)))
        old=dict(ents=tuple(e and put(e,2,False) for e in s.ents),fill=s.fill and put(s.fill,6,False))
        if ph=='idle' and left:
            for k in K:
                e=s.ents[k]
                if e and (s.dl>=e[1] or not p.read_end) and (s.dl>=mark or e[2]):
                    ses(f'session: HIT {k} {show(e[0])}',left-1,'idle',seen|e[0],mark,bound,bad=wrong(k,p.touch,seen,s.acked,e[0],'hit'))
                if settled(s,bound,p.primary):
                    ses(f'session: reads {k} at the primary: {show(s.vis)}',left-1,'idle',seen|s.vis,len(s.wal),0,**old,bad=wrong(k,p.touch,seen,s.acked,s.vis,'primary'))
                if p.part=='fill': continue
                for i in range(p.replicas):
                    floor=max(mark,s.note,s.dl if p.floor=='applied' else 0)
                    ses(f'session: looks up {k}, floor {floor}',left,('ask',i,k,floor,s.acked,0,none,0),seen,mark,bound)
        elif ph!='idle':
            name,i,k,floor,acked,at,res,end=ph; rec,vis,redone=s.sb[i]
            def go(lab,*t): ses(f'session at replica {i}: '+lab,left,t,seen,mark,bound)
            if name=='ask':
                if p.lower!='before': go('sent','go',i,k,floor,acked,0,none,rec)
                elif suits(s,k,floor,redone): go(f'replayed position {redone}','go',i,k,floor,acked,redone,none,rec)
            elif name=='go': go(f'query of {k}: {show(s.wal[:vis])}','read',i,k,floor,acked,at,frozenset(s.wal[:vis]),end)
            elif p.lower!='after' or suits(s,k,floor,redone):
                end={'received':rec,'early':end,'replayed':redone,'log end':len(s.wal)}[p.upper]
                ses(f'session at replica {i}: answer, bound {end}',left-1,'idle',seen|res,max(mark,end),max(bound,end),**old,bad=wrong(k,p.touch,seen,acked,res,'replica'))
        return out
    return explore(init,check,steps)

# a, b: the logs of the old and the new primary behind the fork   at: where the second replica is, and on which timeline
# fill: (phase, taints, result, read_end, timeline) of one key   ses: as above, and whether it has seen the new timeline
Pr=namedtuple('Pr','wal fork new vis nvis acked dl conf pend on sb two lease ent left fill ses bad')

def promotion(p):
    NEW=(len(p.touch),)                                   # a write that only the new primary has
    touch=((0,),)*len(p.touch)+((1,) if p.apart else (0,),)
    init=Pr((),None,(),none,none,none,0,0,none,'old',0,(0,'old'),'old',None,p.fills,None,(p.look,'idle',none,0,0,False),'')
    def hist(s): return s.wal if s.fork is None else s.wal[:s.fork]+s.new
    def log(s,which): return s.wal if which=='old' else hist(s)
    def visible(s,which): return s.vis if which=='old' else frozenset(s.wal[:s.fork])|s.nvis
    def lives(s,xs): return frozenset(xs)&frozenset(hist(s)) if s.on=='new' else frozenset(xs)
    def check(s):
        if s.bad: return s.bad
        e=s.ent
        if not e or s.dl<e[1]: return None
        if not {x for x in log(s,s.on)[:s.dl] if 0 in touch[x]}<=e[0]: return ('FRESH',f'entry={show(e[0])}, delivered {show(log(s,s.on)[:s.dl])}')
        if s.on=='new' and not e[0]<=set(hist(s)): return ('LOST',f'entry={show(e[0])}, the new timeline has {show(hist(s))}')
        return None
    def steps(s):
        out=[]
        def add(lab,**k): out.append((lab,s._replace(**k)))
        for w in range(len(p.touch)):
            if w not in s.wal: add(f'W{w}: commit record in the old log ({len(s.wal)+1})',wal=s.wal+(w,))
            elif w not in s.vis: add(f'W{w}: visible on the old primary',vis=s.vis|{w})
            elif w not in s.acked and s.on=='old' and w in s.wal[:s.dl]: add(f'W{w}: acknowledged',acked=s.acked|{w})
        if s.fork is None:
            if s.sb<len(s.wal): add(f'replica: W{s.wal[s.sb]}',sb=s.sb+1)
            add(f'promotion: forks at {s.sb}',fork=s.sb)
        else:
            for w in NEW:
                if w not in s.new: add(f'W{w}: commit record in the new log ({s.fork+len(s.new)+1})',new=s.new+(w,))
                elif w not in s.nvis: add(f'W{w}: visible on the new primary',nvis=s.nvis|{w})
        at,line=s.two
        if at<len(log(s,line)): add(f'second replica: W{log(s,line)[at]}',two=(at+1,line))
        if s.fork is not None and line=='old' and at<=s.fork: add('second replica follows the new primary',two=(at,'new'))
        if s.lease!=line and p.timeline=='leased': add('the timeline of the second replica is read',lease=line)
        here=log(s,s.on)
        if s.dl<len(here):
            x=here[s.dl]; f=s.fill
            add(f'stream delivers W{x}',dl=s.dl+1,pend=s.pend|{x},ent=None if 0 in touch[x] else s.ent,fill=f and put(f,1,f[1]|{x}))
        if s.conf<s.dl and p.keep=='confirmed': add(f'confirmed {s.dl}',conf=s.dl)
        if s.pend&visible(s,s.on): add('proof from the primary',pend=s.pend-visible(s,s.on))
        if s.fork is not None and s.on=='old': out.append(switched(s))
        f=s.fill
        if f is None:
            if s.ent is None and s.left: add(f'fill registered at the {s.on} primary',fill=('reg',s.pend,none,0,s.on),left=s.left-1)
        elif f[0]=='reg': add(f'fill: query {show(visible(s,f[4]))}',fill=('read',f[1],visible(s,f[4]),len(log(s,f[4])),f[4]))
        elif f[1]-f[2]: add('fill dropped',fill=None)
        else: add(f'INSTALL {show(f[2])}, read_end={f[3]}',fill=None,ent=(f[2],f[3],True))
        return out+session(s)
    def switched(s):
        kept={'fork':s.fork>=s.dl,'confirmed':s.fork>=s.conf,'flush':False,'always':True}[p.keep]
        left,ph,seen,mark,bound,moved=s.ses
        fill=s.fill if p.flights=='kept' else None
        h=hist(s)
        end=(len(h),)*2                                    # who has seen the new timeline needs a log end of the new primary, read now
        if not kept:
            return ('Freshet follows, flush',s._replace(on='new',ent=None,fill=fill,dl=len(h),conf=0,pend=frozenset(h)-visible(s,'new'),
                ses=(left,ph,seen,*(end if moved else (0,0)),False)))
        ent=s.ent if s.ent and (s.ent[1]<=s.fork or p.beyond=='keep') else None
        dl=s.dl if p.slot=='goes on' else len(h)
        ses=(left,ph,seen,*(end if moved else (min(mark,s.fork),min(bound,s.fork)) if p.floors=='kept' else (0,0)),False)
        return ('Freshet follows, entries kept',s._replace(on='new',ent=ent,fill=fill,dl=dl,ses=ses,pend=frozenset(h[:dl])-visible(s,'new')))
    def session(s):
        out=[]
        left,ph,seen,mark,bound,moved=s.ses
        def ses(lab,*t,**k): out.append((lab,s._replace(ses=t,**k)))
        def bad(res,how,acked=s.acked): return wrong(0,touch,lives(s,seen),lives(s,acked),res,how)
        if ph=='idle' and left:
            e=s.ent
            if e and s.dl>=max(e[1],mark) and not moved: ses(f'session: HIT {show(e[0])}',left-1,'idle',seen|e[0],mark,bound,moved,bad=bad(e[0],'hit'))
            now=visible(s,s.on)
            if not moved and s.dl>=bound and not any(x in s.pend for x in log(s,s.on)[:bound]):
                ses(f'session: reads at the {s.on} primary: {show(now)}',left-1,'idle',seen|now,len(log(s,s.on)),0,False,bad=bad(now,'primary'))
            if not moved:
                for which in ('first','second') if s.on=='old' else ('second',):
                    ses(f'session: looks up, floor {max(mark,s.dl)}',left,('ask',which,max(mark,s.dl),s.acked,none),seen,mark,bound,moved)
        elif ph!='idle':
            name,which,floor,acked,res=ph
            at,line=(s.sb,'old' if s.fork is None else 'new') if which=='first' else s.two
            if name=='ask':
                # a promoted server shows the position where it was promoted
                known={'asked':line,'leased':s.lease if which=='second' else line,None:s.on}[p.timeline]
                if at>=floor and known==s.on: ses(f'session at the {which} replica: position {at}',left,('go',which,floor,acked,none),seen,mark,bound,moved)
            elif name=='go':
                got=visible(s,'new') if which=='first' and line=='new' else frozenset(log(s,line)[:at])
                ses(f'session at the {which} replica: query {show(got)}',left,('read',which,floor,acked,got),seen,mark,bound,moved)
            else:
                # its received position; of another timeline or a promoted server it is no bound: the session waits until Freshet has followed
                promoted=which=='first' and line=='new'; other=promoted or line!=s.on
                if p.after and other and s.on=='new': at=len(hist(s)) if promoted else min(at,s.fork)
                moves=bool(p.after) and other and s.on=='old'
                ses(f'session at the {which} replica: answer, bound {at}'+(', another timeline' if moves else ''),left-1,'idle',seen|res,max(mark,at),max(bound,at),moves,
                    bad=bad(res,'replica',acked))
        return out
    return explore(init,check,steps)

TWO=dict(touch=((0,),(1,)))
FILL=dict(part='fill',look=2)
FORK=dict(part='promotion',look=2,touch=((0,),))
V=[
 P('S1 a replica that has reached watermark and applied; the primary behind it once all is proven','HOLDS',look=3,fast=dict(look=2)),
 P('S2 its position is not asked','VIOLATION',lower=None),
 P('S3 its position is asked after the query','VIOLATION',lower='after'),
 P('S4 it must have reached the session\'s watermark only','VIOLATION RYW',floor='watermark'),
 P('S5 upper bound: the replayed position','VIOLATION MONO',upper='replayed'),
 P('S6 upper bound: the received position read before the query','VIOLATION MONO',upper='early'),
 P('S7 the primary is read at once behind a replica','VIOLATION MONO',primary=None),
 P('S8 ... once all that was seen is delivered','VIOLATION MONO',primary='delivered'),
 P('S9 hits without applied >= read_end: an entry that started after the read at a replica lacks what that showed','VIOLATION MONO',read_end=False),
 P('S10 log from an archive, received position as the upper bound','VIOLATION MONO',archive=True),
 P('S11 log from an archive, the primary\'s log end as the upper bound','HOLDS',fast=dict(touch=((0,),)),archive=True,upper='log end'),
 P('S12 writes acknowledged at once, unknown to the choice of a replica','VIOLATION RYW',acks='skipped'),
 P('S13 writes acknowledged at once, their log end noted for replicas','HOLDS',fast=dict(fills=0),acks='noted'),
 P('S14 two replicas','HOLDS',replicas=2,fills=0,touch=((0,),(0,)),fast=dict(touch=((0,),))),
 P('S15 a lagging replica answers what no commit in between touches','HOLDS',tags=True,fast=dict(fills=0),**TWO),
 P('S16 ... where only unproven commits count as in between','VIOLATION',tags=True,ring='pending',**TWO),
 P('S17 ... although the stream has not reached the watermark','VIOLATION',tags=True,reach=False,**TWO),
 P('S18 ... of two replicas, either of which may lag','HOLDS',tags=True,replicas=2,fills=0,fast=dict(touch=((0,),)),**TWO),
 P('X1 fills: nothing delivered behind the replayed position touches them, installed once all is proven','HOLDS',fast=dict(touch=((0,),)),**FILL),
 P('X2 fills by the rules of the primary: PENDING and what came since, with the position as proof','VIOLATION FRESH',proof='pending',**FILL),
 P('X3 pg_current_snapshot() of the replica as proof','VIOLATION FRESH',proof='snapshot',**FILL),
 P('X4 the replayed position is read after the query','VIOLATION FRESH',lower='after',**FILL),
 P('X5 the replayed position as read_end','VIOLATION MONO',upper='replayed',**FILL),
 P('X6 installed once delivered','VIOLATION MONO',hold='delivered',**FILL),
 P('X7 installed at once, with read_end','VIOLATION MONO',hold=None,**FILL),
 P('X8 it counts as newer than the session\'s last read at the primary','VIOLATION MONO',newer=True,**FILL),
 P('X9 ... with the primary\'s log end as read_end','HOLDS',fast=dict(touch=((0,),)),newer=True,upper='log end',**FILL),
 P('X10 two keys','HOLDS',fast=dict(touch=((1,),)),**{**FILL,**TWO}),
 P('X11 fills and reads at the replica, a lagging one too','HOLDS',part='both',tags=True,touch=((0,),(0,)),fast=dict(touch=((0,),))),
 P('Y1 promotion: always flush','HOLDS',keep='flush',**FORK),
 P('Y2 entries stay if the fork is not before the applied position, but those read behind the fork','HOLDS',**FORK),
 P('Y3 entries stay always','VIOLATION',keep='always',**FORK),
 P('Y4 entries stay by the confirmed position','VIOLATION',keep='confirmed',**FORK),
 P('Y5 Y2 with new writes to other keys','HOLDS',apart=True,**FORK),
 P('Y6 ... entries stay that were read behind the fork','VIOLATION LOST',apart=True,beyond='keep',**FORK),
 P('Y7 a flight of the old primary installs','VIOLATION',flights='kept',**FORK),
 P('Y8 entries stay with a new slot','VIOLATION FRESH',slot='new',**FORK),
 P('Y9 entries stay, watermarks are dropped','VIOLATION MONO',floors='dropped',**FORK),
 P('Y10 positions compared without the timeline','VIOLATION',timeline=None,**FORK),
 P('Y11 the timeline of a replica known from before','VIOLATION',timeline='leased',**FORK),
 P('Y12 behind the query, it is not asked whether the replica is on another timeline','VIOLATION MONO',after=None,**FORK),
]
if __name__=='__main__': main(V,run)
